//! A way into an instance through its agent. The director checks who comes, notes it, and passes frames on: the client's as they
//! are, which the agent judges, and the agent's only if they are frames, because a VM may send anything.
//!
//! Nothing is kept on the way. A client who takes nothing keeps the agent from sending, and a client that is silent or gone is
//! noticed by the connection, with which the work in the VM ends.

use std::io;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use serde_json::json;
use windlass_agent_client::{Conversation, NoWayIn};
use windlass_contract::way_in::{Frame, Frames, WayIn};
use windlass_contract::{Object, explain, shortened};
use windlass_planning::names::{DeploymentName, IndexOrId};
use windlass_planning::plan::{Selection, is_compilation_group};
use windlass_planning::records::{InstanceRecord, VmRecord};

use super::deployments::must_include;
use super::permissions::Permission;
use super::{ApiError, Shared, User};
use crate::Director;
use crate::limits::Visit;
use crate::store::Event;
use crate::tasks::reload_one;

/// How much of what somebody wants is noted.
const NOTED: usize = 200;

pub(super) async fn enter(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path((deployment, group, id)): Path<(DeploymentName, String, IndexOrId)>,
    request: Request,
) -> Result<Response, ApiError> {
    let selection = Selection { group: Some(group), instance: Some(id) };
    let found = must_include(&director, &deployment, &selection).await?;
    // Where something was found it is one: a group has each index and uuid once.
    let id = found.into_iter().next().unwrap_or_default();
    let current = reload_one(&director, &id).await.map_err(|error| ApiError::internal(&error))?;
    let (record, vm) = match current.map(|current| (current.record, current.vm)) {
        Some((record, Some(vm))) => (record, vm),
        _ => return Err(ApiError::bad_request(70001, format!("instance '{id}' has no VM; 'start' gives it one"))),
    };
    // What is compiled there is for deployments of all teams.
    if is_compilation_group(&record.group) {
        user.must(&director, Permission::Admin)?;
    }
    let Some(place) = director.limits.visit(director.users.party(&user.name)) else {
        let reason = "too many commands, copies and logs go through agents already; wait until some have ended";
        return Err(ApiError::with_status(StatusCode::TOO_MANY_REQUESTS, 100, reason));
    };
    let (wanted, input) = first_words(request).await?;
    let event = event(&user, &deployment, &record, &wanted);
    let event = director.store.add_event(&event).await?;
    let mut noted = Noted { director: director.clone(), event, outcome: Some(Err(LOST.to_owned())) };
    match director.agents.afresh(&vm).let_in(&wanted, input).await {
        Ok(conversation) => {
            let relay = Relay { conversation, noted, _place: place };
            Ok(Body::from_stream(stream::unfold(Some(relay), Relay::next)).into_response())
        }
        Err(error) => {
            noted.outcome = Some(Err(explain(&error)));
            Err(refusal(&record, &vm, &error))
        }
    }
}

const LOST: &str = "the client went before the end";

/// What the client wants, and the frames that come after it.
async fn first_words(
    request: Request,
) -> Result<(WayIn, impl Stream<Item = io::Result<Bytes>> + Send + 'static), ApiError> {
    let odd = |why: String| ApiError::bad_request(40000, format!("the request does not say what to do: {why}"));
    let mut body = request.into_body().into_data_stream();
    let mut frames = Frames::default();
    let wanted = loop {
        match frames.take().map_err(|error| odd(error.to_string()))? {
            Some(Frame::Begin(words)) => {
                break serde_json::from_slice(&words).map_err(|error| odd(error.to_string()))?;
            }
            Some(_) => return Err(odd("another frame comes first".to_owned())),
            None => {}
        }
        let part = body.next().await.ok_or_else(|| odd("it is empty".to_owned()))?;
        frames.add(&part.map_err(|error| odd(error.to_string()))?);
    };
    let rest = frames.rest();
    let rest = stream::iter((!rest.is_empty()).then(|| Ok(Bytes::from(rest))));
    Ok((wanted, rest.chain(body.map(|part| part.map_err(io::Error::other)))))
}

/// Who does what where; never what a program is told or prints.
fn event(user: &User, deployment: &DeploymentName, record: &InstanceRecord, wanted: &WayIn) -> Event {
    let (action, what) = wanted.work.describe();
    let mut context = Object::new();
    context.insert("what".into(), json!(shortened(what, NOTED)));
    context.insert("root".into(), json!(wanted.root));
    Event {
        deployment: Some(deployment.to_string()),
        instance: Some(record.name()),
        context,
        ..Event::new(&user.name, action, "instance", Some(&record.name()))
    }
}

fn refusal(record: &InstanceRecord, vm: &VmRecord, error: &NoWayIn) -> ApiError {
    let name = record.name();
    match error {
        NoWayIn::Unknown => {
            let stemcell = format!("{}/{}", vm.stemcell.name, vm.stemcell.version);
            let reason = format!(
                "the agent of '{name}' (stemcell {stemcell}) is BOSH's, or older than this director, and has no way in but ssh; \
                 use 'windlass ssh', 'windlass scp', or 'windlass logs -f' with a gateway"
            );
            ApiError::with_status(StatusCode::NOT_ACCEPTABLE, 100, reason)
        }
        NoWayIn::Refused(why) => ApiError::with_status(StatusCode::UNPROCESSABLE_ENTITY, 100, format!("{name}: {why}")),
        NoWayIn::Call(error) => {
            ApiError::with_status(StatusCode::FAILED_DEPENDENCY, 100, format!("{name}: {}", explain(error)))
        }
    }
}

/// An event whose end is noted, however it comes.
struct Noted {
    director: Arc<Director>,
    event: i64,
    /// The exit code, or why there is none.
    outcome: Option<Result<i32, String>>,
}

impl Drop for Noted {
    fn drop(&mut self) {
        let Some(outcome) = self.outcome.take() else { return };
        let (director, event) = (self.director.clone(), self.event);
        tokio::spawn(async move {
            let noted = match outcome {
                Ok(code) => {
                    let context = Object::from_iter([("exit_code".to_owned(), json!(code))]);
                    director.store.end_event_with(event, &context).await
                }
                Err(why) => director.store.end_event(event, Some(&why)).await,
            };
            if let Err(error) = noted {
                tracing::warn!(error = explain(&error), event, "the end of a visit to a VM is not noted");
            }
        });
    }
}

/// Passes on what an agent says.
struct Relay {
    conversation: Conversation,
    noted: Noted,
    _place: Visit,
}

impl Relay {
    async fn next(relay: Option<Self>) -> Option<(io::Result<Bytes>, Option<Self>)> {
        let mut relay = relay?;
        let frame = match relay.conversation.next().await {
            Ok(Some(frame)) => frame,
            Ok(None) => Frame::Broken("the agent broke off".to_owned()),
            Err(error) => Frame::Broken(explain(&error)),
        };
        let bytes = Bytes::from(frame.encode());
        match frame {
            Frame::Ended(code) => relay.noted.outcome = Some(Ok(code)),
            Frame::Broken(why) => relay.noted.outcome = Some(Err(why)),
            Frame::Output(_) | Frame::Errors(_) | Frame::Taken(_) | Frame::Alive => {
                return Some((Ok(bytes), Some(relay)));
            }
            _ => {
                let why = "the agent said what only clients say".to_owned();
                relay.noted.outcome = Some(Err(why.clone()));
                return Some((Ok(Frame::Broken(why).encode().into()), None));
            }
        }
        Some((Ok(bytes), None))
    }
}

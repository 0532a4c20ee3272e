//! A way into an instance through its agent. The director checks who comes, notes it, and passes frames on: the client's as they
//! are, which the agent judges, and the agent's only if they are frames, because a VM may send anything.
//!
//! Nothing is kept on the way. A client who takes nothing keeps the agent from sending, and a client that is silent or gone is
//! noticed by the connection, with which the work in the VM ends.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use serde_json::json;
use windlass_agent_client::{Agent, Conversation, NoWayIn};
use windlass_contract::way_in::{Frame, Frames, WayIn};
use windlass_contract::{Object, explain, shortened};
use windlass_planning::names::{DeploymentName, IndexOrId, InstanceName};
use windlass_planning::plan::{Selection, is_compilation_group};

use super::deployments::must_include;
use super::permissions::{Access, Permission};
use super::{ApiError, Shared, User};
use crate::Director;
use crate::limits::Visit;
use crate::store::{Contact, Event};

/// How much of what somebody wants is noted.
const NOTED: usize = 200;
/// How long a client may take to say what it wants. Ours says it with the request.
const FIRST_WORDS: Duration = Duration::from_secs(10);

/// What is needed of an instance while somebody is there. What is on record of it and its VM may have megabytes.
struct EnteredInstance {
    agent: Agent,
    name: InstanceName,
    /// `NAME/VERSION`.
    stemcell: String,
}

pub(super) async fn enter(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path((deployment, group, id)): Path<(DeploymentName, String, IndexOrId)>,
    request: Request,
) -> Result<Response, ApiError> {
    // What is compiled there is for deployments of all teams.
    if is_compilation_group(&group) {
        user.must(&director, Permission::Admin)?;
    }
    // Nothing is read for those for whom there is no place, or who say nothing.
    let Some(place) = director.limits.visit(director.users.party(&user.name)) else {
        let reason = "too many commands, copies and logs go through agents already; wait until some have ended";
        return Err(ApiError::with_status(StatusCode::TOO_MANY_REQUESTS, 100, reason));
    };
    let (wanted, input) = first_words(request, FIRST_WORDS).await?;
    // The deployment may be somebody else's by now.
    user.must_with_deployment(&director, Access::Admin, &deployment).await?;
    let selection = Selection { group: Some(group), instance: Some(id) };
    let entered = entered(&director, &deployment, &selection).await?;
    let event = event(&user, &deployment, &entered.name, &wanted);
    let event = director.store.add_event(&event).await?;
    let mut noted = Noted { director: director.clone(), event, outcome: Some(Err(LOST.to_owned())) };
    match entered.agent.let_in(&wanted, input).await {
        Ok(conversation) => {
            let relay = Relay { conversation, noted, _place: place };
            Ok(Body::from_stream(stream::unfold(Some(relay), Relay::next)).into_response())
        }
        Err(error) => {
            noted.outcome = Some(Err(explain(&error)));
            Err(refusal(&entered, &error))
        }
    }
}

/// The way to the agent of an instance, which is looked up in a turn: what is on record is in memory meanwhile.
async fn entered(
    director: &Director,
    deployment: &DeploymentName,
    selection: &Selection,
) -> Result<EnteredInstance, ApiError> {
    let _turn = director.limits.lists.turn().await;
    let found = must_include(director, deployment, selection).await?;
    // Where something was found it is one: a group has each index and uuid once.
    let id = found.into_iter().next().unwrap_or_default();
    match director.store.contact(&id).await? {
        Some(Contact { record, vm: Some(vm) }) => Ok(EnteredInstance {
            agent: director.agents.afresh(&vm),
            name: record.name(),
            stemcell: format!("{}/{}", vm.stemcell.name, vm.stemcell.version),
        }),
        _ => Err(ApiError::bad_request(70001, format!("instance '{id}' has no VM; 'start' gives it one"))),
    }
}

const LOST: &str = "the client went before the end";

/// What the client wants, and the frames that come after it.
async fn first_words(
    request: Request,
    patience: Duration,
) -> Result<(WayIn, impl Stream<Item = io::Result<Bytes>> + Send + 'static), ApiError> {
    let odd = |why: String| ApiError::bad_request(40000, format!("the request does not say what to do: {why}"));
    let mut body = request.into_body().into_data_stream();
    let mut frames = Frames::default();
    let words = async {
        loop {
            match frames.take().map_err(|error| odd(error.to_string()))? {
                Some(Frame::Begin(words)) => {
                    break serde_json::from_slice(&words).map_err(|error| odd(error.to_string()));
                }
                Some(_) => return Err(odd("another frame comes first".to_owned())),
                None => {}
            }
            let part = body.next().await.ok_or_else(|| odd("it is empty".to_owned()))?;
            frames.add(&part.map_err(|error| odd(error.to_string()))?);
        }
    };
    let late = |_| {
        let reason = format!("the request did not say what to do within {} seconds", patience.as_secs());
        ApiError::with_status(StatusCode::REQUEST_TIMEOUT, 40000, reason)
    };
    let wanted = tokio::time::timeout(patience, words).await.map_err(late)??;
    let rest = frames.rest();
    let rest = stream::iter((!rest.is_empty()).then(|| Ok(Bytes::from(rest))));
    Ok((wanted, rest.chain(body.map(|part| part.map_err(io::Error::other)))))
}

/// Who does what where; never what a program is told or prints.
fn event(user: &User, deployment: &DeploymentName, instance: &InstanceName, wanted: &WayIn) -> Event {
    let (action, what) = wanted.work.describe();
    let mut context = Object::new();
    context.insert("what".into(), json!(shortened(what, NOTED)));
    context.insert("root".into(), json!(wanted.root));
    Event {
        deployment: Some(deployment.to_string()),
        instance: Some(instance.clone()),
        context,
        ..Event::new(&user.name, action, "instance", Some(instance))
    }
}

fn refusal(EnteredInstance { name, stemcell, .. }: &EnteredInstance, error: &NoWayIn) -> ApiError {
    match error {
        NoWayIn::Unknown => {
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::http::Method;
    use windlass_contract::VmCid;
    use windlass_contract::way_in::Work;
    use windlass_operations::ledger::{Fact, Ledger};
    use windlass_operations::testing::{new_instance_record, new_vm_record};

    use super::*;
    use crate::testing::TestDirector;

    /// A director with one instance, whose agent does not answer.
    async fn with_an_instance() -> TestDirector {
        let test = TestDirector::new().await;
        let store = &test.director.store;
        store.add_deployment(&"shop".into(), &["shop".to_owned()]).await.unwrap();
        let instance = new_instance_record("shop", "db", "1f");
        let vm = new_vm_record(VmCid::new("vm-1").unwrap(), &instance.id, false);
        store.begin_instances(&[instance], &[]).await.unwrap();
        store.record(&Fact::VmCreated { vm: Box::new(vm) }).await.unwrap();
        test
    }

    fn begin() -> Bytes {
        let wanted = WayIn { root: false, work: Work::Run { command: vec!["true".into()] } };
        Frame::Begin(serde_json::to_vec(&wanted).unwrap()).encode().into()
    }

    async fn enter_with(test: &TestDirector, body: impl Into<Body>) -> (StatusCode, String) {
        let path = "/windlass/deployments/shop/instances/db/0/way-in";
        test.send(Some("shop-admin"), Method::POST, path, body).await
    }

    /// Sixty-four clients that said nothing kept sixty-four copies of what is on record of an instance: gigabytes.
    #[tokio::test]
    async fn what_is_on_record_is_read_when_a_client_has_spoken_and_no_more_than_is_needed() {
        let test = with_an_instance().await;
        let store = &test.director.store;
        // Where somebody comes in, nobody needs to know what the instance is brought to: it cannot be read.
        store.tamper("UPDATE instances SET spec = 'large', applied = 'larger'").await;
        let (status, told) = enter_with(&test, begin()).await;
        assert_eq!(status, StatusCode::FAILED_DEPENDENCY, "{told}");
        let late = |statement: &'static str| {
            let store = store.clone();
            Body::from_stream(stream::once(async move {
                store.tamper(statement).await;
                Ok::<_, Infallible>(begin())
            }))
        };
        let (status, told) = enter_with(&test, late("DELETE FROM vms")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{told}");
        assert!(told.contains("has no VM"), "{told}");
        // Whose it is counts when the client has spoken, too.
        let (status, told) = enter_with(&test, late("UPDATE deployment_teams SET team = 'bank'")).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{told}");
    }

    /// Those who were refused cost as much as those who were not.
    #[tokio::test]
    async fn nothing_is_read_for_those_for_whom_there_is_no_place() {
        let test = with_an_instance().await;
        let director = &test.director;
        let of_user = || director.limits.visit(director.users.party("shop-admin"));
        let visits: Vec<_> = std::iter::from_fn(of_user).collect();
        director.store.tamper("DELETE FROM vms").await;
        assert_eq!(enter_with(&test, begin()).await.0, StatusCode::TOO_MANY_REQUESTS);
        drop(visits);
        assert_eq!(enter_with(&test, begin()).await.0, StatusCode::BAD_REQUEST);
    }

    /// A client that was there and said nothing kept its place for as long as it liked, with a byte a minute.
    #[tokio::test]
    async fn who_does_not_say_what_they_want_is_given_up() {
        let slow = stream::iter([Ok::<_, Infallible>(begin().slice(..3))]).chain(stream::pending());
        let request = Request::new(Body::from_stream(slow));
        let refused = first_words(request, Duration::from_millis(10)).await.err().unwrap();
        assert_eq!(refused.into_response().status(), StatusCode::REQUEST_TIMEOUT);
        let (wanted, input) = first_words(Request::new(begin().into()), FIRST_WORDS).await.ok().unwrap();
        assert_eq!(wanted.work.describe(), ("exec", "true".to_owned()));
        assert_eq!(input.count().await, 0);
    }
}

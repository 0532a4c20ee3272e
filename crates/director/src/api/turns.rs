//! Requests wait for their turn: those with documents for one of their user's places, lists for each other.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

use super::{ApiError, User};
use crate::Director;

/// Lets a request of a known user wait for its turn before anything of its body is read.
pub(super) async fn in_turn(State(director): State<Arc<Director>>, request: Request, next: Next) -> Response {
    if request.method() == Method::GET {
        let _turn = director.limits.list().await;
        return next.run(request).await;
    }
    let Some(user) = request.extensions().get::<User>() else {
        return ApiError::unauthorized(600000, "credentials are needed").into_response();
    };
    let place = director.limits.place_of(&user.name).await;
    // Answers may be as large as what was asked, so the place is kept until the client has it.
    next.run(request).await.map(|body| Body::new(Placed { body, _place: place }))
}

/// A body that keeps its request's place until it was sent.
struct Placed {
    body: Body,
    _place: Option<OwnedSemaphorePermit>,
}

impl hyper::body::Body for Placed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

//! Callers that may have to fall silent: a director that another one took over from must not tell agents anything.

use std::sync::Arc;

use futures_util::future::BoxFuture;

/// Whether the caller may still speak: asked, and waited for, before every message.
#[derive(Clone)]
pub struct Permission(Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>);

impl Permission {
    /// What `ask` says.
    pub fn new(ask: impl Fn() -> BoxFuture<'static, bool> + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }

    pub(crate) async fn is_given(&self) -> bool {
        (self.0)().await
    }
}

impl Default for Permission {
    fn default() -> Self {
        Self::new(|| Box::pin(std::future::ready(true)))
    }
}

impl std::fmt::Debug for Permission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Permission")
    }
}

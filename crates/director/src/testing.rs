//! A director for tests: real records, no clouds and no workers.

use std::sync::Arc;

use async_trait::async_trait;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode, header};
use axum::response::Response;
use base64::Engine;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use tokio::sync::mpsc;
use windlass_contract::Secret;
use windlass_database::Lead;
use windlass_operations::agents::Agents;
use windlass_operations::clouds::Clouds;
use windlass_pki::Authority;
use windlass_variables::{ConfigServer, Generation, ServerError, Version};

use crate::Director;
use crate::api::router;
use crate::settings::Settings;
use crate::software::Library;
use crate::state_dir::StateDir;
use crate::store::Store;
use crate::tasks::Workers;
use crate::users::{Account, Credentials, Scopes, Users};
use crate::variables::Variables;
use crate::variables::vault;

/// A config server that never answers, and tells when it is asked for a version.
#[derive(Debug)]
struct SilentConfigServer(mpsc::UnboundedSender<()>);

#[async_trait]
impl ConfigServer for SilentConfigServer {
    async fn current(&self, _: &str) -> Result<Option<Version>, ServerError> {
        std::future::pending().await
    }

    async fn version(&self, _: &str, _: &str) -> Result<Option<Version>, ServerError> {
        let _ = self.0.send(());
        std::future::pending().await
    }

    async fn generate(&self, _: &Generation) -> Result<Version, ServerError> {
        std::future::pending().await
    }
}

/// A director without clouds and workers: what it is asked for is answered or queued.
pub(crate) struct TestDirector {
    pub(crate) director: Arc<Director>,
    _folder: tempfile::TempDir,
}

fn credentials(user: &str) -> Credentials {
    Credentials { user: user.into(), password: Secret::new(format!("{user}-password")) }
}

impl TestDirector {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// With other settings than the usual ones.
    pub(crate) async fn with(set: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::default();
        set(&mut settings);
        let folder = tempfile::tempdir().unwrap();
        let folders = StateDir::open(&folder.path().join("state")).unwrap();
        let store = Store::open(&format!("sqlite:{}", folders.database().display())).await.unwrap();
        let authority = Authority::open(&folders.pki()).unwrap();
        let client = authority.director_client(&folders.pki()).unwrap();
        let account = |name: &str, scopes: &[&str]| Account {
            credentials: credentials(name),
            scopes: Arc::new(Scopes::parse(scopes.iter().copied()).unwrap()),
        };
        let others = vec![
            account("reader", &["bosh.read"]),
            account("shop-admin", &["bosh.teams.shop.admin"]),
            account("shop-reader", &["bosh.teams.shop.read"]),
            account("bank-admin", &["bosh.teams.bank.admin"]),
            account("uploader", &["bosh.stemcells.upload", "bosh.releases.upload"]),
            account("secret-keeper", &["config_server.admin"]),
        ];
        let blobs = Arc::new(crate::blobs::open(&Default::default(), &folders, "uuid").unwrap());
        let cipher = vault::open(&store, &settings.variables, &folders).await.unwrap();
        let variables = Variables::embedded(store.clone(), Arc::new(cipher));
        let library = Arc::new(Library::new(store.clone(), blobs.clone(), windlass_render::Backends::new(None)));
        let agents = Arc::new(Agents::new(authority, &client, Default::default()).unwrap());
        let (local_dns, temporary) = (settings.local_dns, folders.temporary());
        let dns = Arc::new(crate::local_dns::LocalDns::new(local_dns, store.clone(), agents.clone(), temporary));
        let director = Director {
            name: "test".into(),
            uuid: "uuid".into(),
            users: Users::new("uuid", credentials("admin"), others),
            store,
            clouds: Clouds::none(),
            drivers: None,
            agents,
            dns,
            lead: Lead::for_good(),
            folders,
            workers: Workers::default(),
            settings,
            health: Default::default(),
            metrics: Default::default(),
            limits: Default::default(),
            library,
            variables,
            webhook: Default::default(),
            known_answers: Default::default(),
            blobs,
            release_files: Default::default(),
        };
        Self { director: Arc::new(director), _folder: folder }
    }

    /// With a config server that never answers, and deployments of these teams that have a variable there. It tells when it is asked.
    pub(crate) async fn with_silent_config_server(deployments: &[(&str, &str)]) -> (Self, mpsc::UnboundedReceiver<()>) {
        let mut test = Self::new().await;
        let (tells, told) = mpsc::unbounded_channel();
        Arc::get_mut(&mut test.director).unwrap().variables.server = Arc::new(SilentConfigServer(tells));
        for (number, (deployment, team)) in deployments.iter().enumerate() {
            let store = &test.director.store;
            store.add_deployment(&(*deployment).into(), &[(*team).to_owned()]).await.unwrap();
            let set = format!(
                "INSERT INTO variable_sets (deployment, task, created_at, deployed) VALUES ('{deployment}', {number}, 1, 1)"
            );
            store.tamper(set.leak()).await;
        }
        test.director.store.tamper("INSERT INTO variables SELECT id, '/x', '1' FROM variable_sets").await;
        (test, told)
    }

    /// Its disk has nothing but its reserve from now on, as far as it sees.
    pub(crate) fn fill_the_disk(&self) {
        let temporary = self.director.folders.temporary();
        std::fs::remove_dir_all(&temporary).unwrap();
        // A file system without room.
        std::os::unix::fs::symlink("/proc", &temporary).unwrap();
    }

    pub(crate) async fn send(
        &self,
        user: Option<&str>,
        method: Method,
        path: &str,
        body: impl Into<Body>,
    ) -> (StatusCode, String) {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(user) = user {
            request = request.header(header::AUTHORIZATION, self.basic(user));
        }
        self.answer(request.body(body.into()).unwrap()).await
    }

    /// What a user shows.
    pub(crate) fn basic(&self, user: &str) -> String {
        let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{user}-password"));
        format!("Basic {pair}")
    }

    pub(crate) async fn whole_answer(&self, request: Request<Body>) -> Response {
        TowerToHyperService::new(router(self.director.clone())).call(request).await.unwrap()
    }

    pub(crate) async fn answer(&self, request: Request<Body>) -> (StatusCode, String) {
        let answer = self.whole_answer(request).await;
        let status = answer.status();
        let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// As admin.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: impl Into<Body>) -> (StatusCode, Value) {
        let (status, text) = self.send(Some("admin"), method, path, body).await;
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }
}

//! Certificates renew themselves, long before they end: the director's own while it serves, agents' over the live connection.

use std::sync::Arc;

use time::OffsetDateTime;
use windlass_contract::explain;
use windlass_durable::file;
use windlass_pki::{Keychain, Keys};

use crate::Director;
use crate::leadership::note_authorities;
use crate::schedules;
use crate::server_tls::LiveCertificate;
use crate::store::StoreError;
use crate::tasks::Job;

/// why certificates cannot be renewed
#[derive(Debug, thiserror::Error)]
enum RenewalError {
    /// the keys
    #[error(transparent)]
    Pki(#[from] windlass_pki::PkiError),
    /// the server's certificate
    #[error(transparent)]
    Server(#[from] crate::server_tls::ServerTlsError),
    /// the client's certificate
    #[error(transparent)]
    Client(#[from] windlass_agent_client::TlsError),
    /// the CA's certificate cannot be written for clients
    #[error("cannot write the CA's certificate for clients")]
    File(#[from] std::io::Error),
    /// the records
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Renews what is due until `stop` resolves.
pub(crate) async fn run(
    director: Arc<Director>,
    keychain: Keychain,
    server: Arc<LiveCertificate>,
    stop: impl Future<Output = ()>,
) {
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => return,
            () = tokio::time::sleep(keychain.interval()) => {}
        }
        if let Err(error) = renew(&director, &keychain, &server).await {
            tracing::error!(error = explain(&error), "certificates cannot be renewed");
        }
    }
}

async fn renew(director: &Director, keychain: &Keychain, server: &LiveCertificate) -> Result<(), RenewalError> {
    let deployments = director.store.deployments().await?;
    let mut all_trust_successor = true;
    for deployment in &deployments {
        let vms = director.store.vms(&deployment.name).await?;
        all_trust_successor &= vms.iter().all(|vm| director.agents.trusts_everybody(vm));
    }
    // Making an RSA key takes a while.
    let chain = keychain.clone();
    let refresh = move || chain.refresh(OffsetDateTime::now_utc(), all_trust_successor);
    let keys = tokio::task::spawn_blocking(refresh).await.map_err(std::io::Error::other)??;
    let authorities = keys.authority.digests();
    use_keys(director, server, keys)?;
    note_authorities(&director.store, &authorities).await?;
    for deployment in deployments {
        let vms = director.store.vms(&deployment.name).await?;
        if vms.iter().any(|vm| vm.ready && director.agents.is_renewal_due(vm)) {
            schedules::queue(director, Job::RenewCertificates { deployment: deployment.name }).await?;
        }
    }
    Ok(())
}

fn use_keys(director: &Director, server: &LiveCertificate, keys: Keys) -> Result<(), RenewalError> {
    let path = director.folders.ca_certificate();
    if std::fs::read_to_string(&path).ok().as_deref() != Some(keys.authority.certificate()) {
        file::write(&path, keys.authority.certificate().as_bytes(), 0o644)?;
        tracing::warn!(path = %path.display(), "the CA's certificates changed; clients elsewhere need this file anew");
    }
    server.replace(&keys.server)?;
    director.agents.renew(keys.authority, &keys.client)?;
    Ok(())
}

//! Certificates renew themselves, long before they end: the director's own while it serves, agents' over the live connection.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use windlass_contract::explain;
use windlass_durable::file;
use windlass_operations::clock;
use windlass_pki::{Keychain, Keys};

use crate::Director;
use crate::leadership::note_authorities;
use crate::schedules;
use crate::server_tls::{self, LiveCertificate};
use crate::store::StoreError;
use crate::tasks::Job;
use crate::webhook::{Notice, NoticeKind};

/// When this part of its life is left, or this time, a certificate should have been renewed long ago.
const LATE: u32 = 8;
const LATEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// why certificates cannot be renewed
#[derive(Debug, thiserror::Error)]
enum RenewalError {
    #[error(transparent)]
    Pki(#[from] windlass_pki::PkiError),
    #[error(transparent)]
    Server(#[from] crate::server_tls::ServerTlsError),
    #[error(transparent)]
    Client(#[from] windlass_agent_client::TlsError),
    /// the CA's certificate cannot be written for clients
    #[error("cannot write the CA's certificate for clients")]
    File(#[from] std::io::Error),
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
    let mut told = BTreeSet::new();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => return,
            () = tokio::time::sleep(keychain.interval()) => {}
        }
        if let Err(error) = renew(&director, &keychain, &server).await {
            tracing::error!(error = explain(&error), "certificates cannot be renewed");
        }
        tell_endings(&director, &keychain, OffsetDateTime::now_utc(), &mut told).await;
        tell_end_for_cluster(&director, OffsetDateTime::now_utc(), &mut told).await;
    }
}

/// The file with the certificate for a cluster of Incus or LXD, and when that certificate ends, if there is one.
pub(crate) fn end_for_cluster(director: &Director) -> Option<(PathBuf, OffsetDateTime)> {
    let path = director.folders.cpi_config("incus");
    let config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).ok()?).ok()?;
    let certificate = config.pointer("/cloud/properties/incus/certificate")?.as_str()?;
    Some((path, windlass_pki::expiry(certificate).ok()?))
}

/// Nobody renews that one but the operator.
async fn tell_end_for_cluster(
    director: &Director,
    now: OffsetDateTime,
    told: &mut BTreeSet<(PathBuf, OffsetDateTime)>,
) {
    let Some((path, end)) = end_for_cluster(director).filter(|(_, end)| *end - now <= LATEST) else { return };
    if told.insert((path, end)) {
        let message = format!(
            "the client certificate for the cluster ends at {}; make a new one with 'windlass cpi incus trust', and restart the \
             director with it",
            clock::rfc3339(end.unix_timestamp())
        );
        tracing::error!("{message}");
        let kind = NoticeKind::CertificateExpires;
        director.notify(Notice { kind, deployment: None, instance: None, task: None, message: &message }).await;
    }
}

/// Tells of certificates that end soon although they renew themselves long before: somebody has to look why.
async fn tell_endings(
    director: &Director,
    keychain: &Keychain,
    now: OffsetDateTime,
    told: &mut BTreeSet<(PathBuf, OffsetDateTime)>,
) {
    let expiries = match keychain.expiries() {
        Ok(expiries) => expiries,
        Err(error) => {
            tracing::error!(error = explain(&error), "cannot tell when certificates end");
            return;
        }
    };
    for (path, end) in expiries {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let lifetimes = director.settings.certificates;
        let lifetime = if name.contains("ca") { lifetimes.ca } else { lifetimes.leaf };
        // An old CA is kept until it ends, which is no news.
        let is_near = end - now <= (lifetime / LATE).min(LATEST);
        if is_near && name != "old-ca.pem" && told.insert((path.clone(), end)) {
            let message = format!(
                "the certificate {name} of the director ends at {} and was not renewed",
                clock::rfc3339(end.unix_timestamp())
            );
            tracing::error!(certificate = name, "{message}");
            let kind = NoticeKind::CertificateExpires;
            director.notify(Notice { kind, deployment: None, instance: None, task: None, message: &message }).await;
        }
    }
}

async fn renew(director: &Director, keychain: &Keychain, server: &LiveCertificate) -> Result<(), RenewalError> {
    let deployments = director.store.deployment_names().await?;
    let mut all_trust_successor = true;
    for deployment in &deployments {
        let vms = director.store.vms_to_talk_to(deployment).await?;
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
        let vms = director.store.vms_to_talk_to(&deployment).await?;
        if vms.iter().any(|vm| vm.ready && director.agents.is_renewal_due(vm)) {
            schedules::queue(director, Job::RenewCertificates { deployment }).await?;
        }
    }
    Ok(())
}

fn use_keys(director: &Director, server: &LiveCertificate, keys: Keys) -> Result<(), RenewalError> {
    let (path, given) = (director.folders.ca_certificate(), director.settings.tls.as_ref());
    let trusted = server_tls::trusted(given, &keys.authority)?;
    if std::fs::read_to_string(&path).ok().as_deref() != Some(trusted.as_str()) {
        file::write(&path, trusted.as_bytes(), 0o644)?;
        tracing::warn!(path = %path.display(), "the CA's certificates changed; clients elsewhere need this file again");
    }
    server.replace(&server_tls::shown(given, keys.server)?)?;
    director.agents.renew(keys.authority, &keys.client)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use windlass_contract::Secret;

    use super::*;
    use crate::settings::WebhookSettings;
    use crate::testing::TestDirector;

    #[tokio::test]
    async fn a_certificate_that_was_not_renewed_wakes_somebody_once() {
        let bench = TestDirector::with(|settings| {
            let word = |word: &str| Secret::new(word.to_owned());
            let events = vec![NoticeKind::CertificateExpires];
            settings.webhook = Some(WebhookSettings { url: word("http://127.0.0.1:1"), secret: word("x"), events });
        })
        .await;
        let director = &bench.director;
        let keychain = Keychain::new(&director.folders.pki(), vec!["127.0.0.1".into()], director.settings.certificates);
        let now = OffsetDateTime::now_utc();
        keychain.refresh(now, false).unwrap();
        let end = keychain.expiries().unwrap().iter().find(|(path, _)| path.ends_with("server.pem")).unwrap().1;
        let mut told = BTreeSet::new();
        tell_endings(director, &keychain, now, &mut told).await;
        assert_eq!(director.store.next_notice().await.unwrap(), None, "they are new");
        for _ in 0..2 {
            tell_endings(director, &keychain, end - Duration::from_secs(29 * 24 * 60 * 60), &mut told).await;
        }
        // That of a cluster is the operator's to renew.
        let path = director.folders.cpi_config("incus");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let certificate = std::fs::read_to_string(director.folders.pki().join("server.pem")).unwrap();
        let config = serde_json::json!({"cloud": {"properties": {"incus": {"certificate": certificate}}}});
        std::fs::write(&path, config.to_string()).unwrap();
        tell_end_for_cluster(director, end - Duration::from_secs(31 * 24 * 60 * 60), &mut told).await;
        for _ in 0..2 {
            tell_end_for_cluster(director, end - Duration::from_secs(29 * 24 * 60 * 60), &mut told).await;
        }
        let mut messages = Vec::new();
        while let Some((notice, _)) = director.store.next_notice().await.unwrap() {
            director.store.delivered(notice.id, 0).await.unwrap();
            messages.push(notice.body);
        }
        assert_eq!(messages.len(), 3, "the server's, the client's and the cluster's: {messages:?}");
        assert!(messages.iter().any(|body| body.contains("windlass cpi incus trust")), "{messages:?}");
        assert!(
            messages.iter().any(|body| body.contains("the certificate server.pem of the director ends at ")),
            "{messages:?}"
        );
    }
}

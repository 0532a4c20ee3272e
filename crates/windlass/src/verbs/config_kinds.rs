//! `windlass cloud-config`, `runtime-config`, `cpi-config`, and the verbs that change them.

use windlass_director_client::answers::{CloudConfig, Diff};
use windlass_director_client::query;
use windlass_manifest::interpolate::Strictness;

use crate::cli::DocumentArgs;
use crate::diff_view;
use crate::failure::Failure;
use crate::session::{Session, While};
use crate::verbs::{config_warnings, read_yaml, releases_of_document};

/// The configs that have verbs of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// What the cloud offers to deployments.
    Cloud,
    /// What every deployment gets.
    Runtime,
    /// Which clouds there are.
    Cpi,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Cloud => "cloud",
            Self::Runtime => "runtime",
            Self::Cpi => "cpi",
        }
    }

    /// The CPI config has no name.
    fn query(self, name: &str) -> Vec<(&'static str, String)> {
        if self == Self::Cpi { Vec::new() } else { vec![("name", name.to_owned())] }
    }
}

pub(super) async fn show(session: &mut Session<'_>, kind: Kind, name: &str) -> Result<(), Failure> {
    let mut asked = kind.query(name);
    asked.push(("limit", "1".to_owned()));
    let path = format!("/{}_configs{}", kind.name(), query(asked));
    let found: Vec<CloudConfig> =
        session.director.get(&path).await.while_(format!("reading the {} config", kind.name()))?;
    let newest = found.into_iter().next().ok_or(Failure::NoConfig { kind: kind.name() })?;
    session.screen.block(&newest.properties);
    Ok(())
}

pub(super) async fn update(
    session: &mut Session<'_>,
    kind: Kind,
    document: &DocumentArgs,
    name: &str,
    no_redact: bool,
    fix_releases: bool,
) -> Result<(), Failure> {
    let (mut text, parsed) = read_yaml(&document.file, &document.changes, Strictness::default())?;
    config_warnings::show(session.screen, kind.name(), &parsed);
    let mut is_verbatim = document.changes.is_empty();
    if kind == Kind::Runtime
        && let Some(changed) = releases_of_document::upload(session, &parsed, fix_releases).await?
    {
        (text, is_verbatim) = (changed, false);
    }
    let mut asked = kind.query(name);
    asked.extend(no_redact.then(|| ("redact", "false".to_owned())));
    let path = format!("/{}_configs/diff{}", kind.name(), query(asked));
    let diff = session.director.post_yaml::<Diff>(&path, &text).await;
    diff_view::show(session.screen, &diff.while_(format!("comparing the {} config", kind.name()))?.diff);
    session.confirm()?;
    let mut asked = kind.query(name);
    // As it is in the file, so that problems are told with their lines.
    asked.extend(is_verbatim.then(|| ("verbatim", "true".to_owned())));
    let path = format!("/{}_configs{}", kind.name(), query(asked));
    session.director.store_yaml(&path, &text).await.while_(format!("updating the {} config", kind.name()))
}

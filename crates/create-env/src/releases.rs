//! The releases that a manifest names: those that are used are fetched, checked and read; all of them are on record in the state
//! file, because BOSH's client takes an environment for changed whose releases are not.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;
use windlass_archive::{Tarball, decompressed, first_bytes, inside};
use windlass_download::{Download, KeptError, kept_path};
use windlass_installation::SecretFolder;
use windlass_manifest::{At, Document, Problem, fields};
use windlass_release::{Release, ReleaseError};

use crate::report::Report;
use crate::run::{EnvError, EnvOptions};
use crate::state::ReleaseEntry;
use crate::stemcell::local_path;

/// why a release cannot be used
#[derive(Debug, thiserror::Error)]
pub enum EnvReleaseError {
    /// nobody says where it is
    #[error("the release '{0}' is needed and is not in 'releases'; add it there with its url")]
    Unlisted(String),
    /// its place is no URL
    #[error("the release '{name}' has the url '{url}'; expected one that begins with file://, http:// or https://")]
    Url { name: String, url: String },
    /// it is downloaded, and nobody can say whether it is the right one
    #[error(
        "the release '{0}' is downloaded, so it needs a 'sha1'; add it, so that it is known to be the one that is meant"
    )]
    NoDigest(String),
    /// it cannot be fetched, or is another one
    #[error("the release '{name}' is not to be had")]
    Fetch {
        name: String,
        #[source]
        source: KeptError,
    },
    /// its tarball cannot be used
    #[error("'{}' cannot be used as the release '{name}'", path.display())]
    Read {
        name: String,
        path: PathBuf,
        #[source]
        source: Box<ReleaseError>,
    },
    /// it is another release
    #[error("'{}' is the release '{found}', and the manifest calls it '{name}'; correct the name or the url", path.display())]
    Name { name: String, found: String, path: PathBuf },
}

/// Releases on this machine, with their archives, for as long as a run needs them.
#[derive(Debug)]
pub(crate) struct ReadReleases {
    pub(crate) releases: Vec<Release>,
    _folder: SecretFolder,
}

/// Fetches and reads the releases of these names. Their archives go with the run.
pub(crate) async fn read(
    options: &EnvOptions,
    report: &Report,
    listed: &[ReleasePlace],
    needed: &[&str],
) -> Result<Arc<ReadReleases>, EnvError> {
    let path = std::env::temp_dir().join(format!("windlass-releases-{}", Uuid::new_v4().simple()));
    let folder = SecretFolder::new(&path).map_err(|source| EnvError::File { path, source })?;
    let mut releases = Vec::new();
    for (number, name) in needed.iter().enumerate() {
        report.go_on()?;
        let place = listed.iter().find(|place| place.name == *name);
        let place = place.ok_or_else(|| EnvReleaseError::Unlisted((*name).to_owned()))?;
        let tarball = place.fetch(options, report).await?;
        let into = folder.path().join(number.to_string());
        let reading = async {
            let (name, path) = (place.name.clone(), tarball.clone());
            std::fs::create_dir(&into).map_err(|source| EnvError::File { path: into.clone(), source })?;
            let read = tokio::task::spawn_blocking(move || windlass_release::read(&tarball, &into)).await;
            let read = read.map_err(|error| EnvError::Access(error.to_string()))?;
            let release = read.map_err(|error| EnvReleaseError::Read {
                name: name.clone(),
                path: path.clone(),
                source: Box::new(error),
            })?;
            match release.manifest.name == name {
                true => Ok(release),
                false => Err(EnvError::from(EnvReleaseError::Name { name, found: release.manifest.name, path })),
            }
        };
        releases.push(report.step(&format!("Validating release '{name}'"), reading).await?);
    }
    Ok(Arc::new(ReadReleases { releases, _folder: folder }))
}

/// More is no manifest of a release.
const LARGEST_MANIFEST: u64 = 4 << 20;

/// A release in the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleasePlace {
    pub name: String,
    pub url: Option<String>,
    /// A digest, or several.
    pub sha1: Option<String>,
    /// What the manifest says.
    pub version: Option<String>,
}

impl ReleasePlace {
    /// Reads one entry of `releases`.
    pub(crate) fn read(at: &At<'_>) -> Result<Self, Problem> {
        let optional = |key: &str| at.optional(key)?.map(|value| fields::text(&value)).transpose();
        Ok(Self {
            name: fields::text(&at.field("name")?)?,
            url: optional("url")?,
            sha1: optional("sha1")?,
            version: optional("version")?,
        })
    }

    /// Its tarball, on this machine.
    async fn fetch(&self, options: &EnvOptions, report: &Report) -> Result<PathBuf, EnvError> {
        let (name, url) = (self.name.clone(), self.url.as_deref().unwrap_or_default());
        if let Some(path) = local_path(url, options.folder()) {
            return Ok(path);
        }
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(EnvReleaseError::Url { name, url: windlass_download::shown(url) }.into());
        }
        let digest = self.sha1.as_deref().ok_or_else(|| EnvReleaseError::NoDigest(name.clone()))?;
        let title = format!("Downloading release '{name}'");
        let download = Download::of("release").with_patience(options.patience).through_bosh_proxy();
        let fetching = report.unless_stopped(download.fetch_once(url, digest, &options.downloads));
        let fetching =
            async { fetching.await?.map_err(|source| EnvError::from(EnvReleaseError::Fetch { name, source })) };
        report.step(&title, fetching).await
    }

    /// The version of the tarball, where it is on this machine, and otherwise what the manifest says.
    fn version(&self, manifest_folder: &Path, downloads: &Path) -> Option<String> {
        let tarball = self.url.as_deref().map(|url| {
            let fetched = || kept_path(url, self.sha1.as_deref().unwrap_or_default(), downloads);
            local_path(url, manifest_folder).unwrap_or_else(fetched)
        });
        tarball.and_then(|tarball| version_in(&tarball)).or_else(|| self.version.clone())
    }
}

/// What the state file says about releases; nothing about one whose version nobody can tell.
pub(crate) fn entries(
    releases: &[ReleasePlace],
    read: &[Release],
    manifest_folder: &Path,
    downloads: &Path,
) -> Vec<ReleaseEntry> {
    let entry = |release: &ReleasePlace| {
        let known = read.iter().find(|known| known.manifest.name == release.name);
        let known = known.map(|known| known.manifest.version.clone());
        let version = known.or_else(|| release.version(manifest_folder, downloads))?;
        Some(ReleaseEntry { id: Uuid::new_v4().to_string(), name: release.name.clone(), version })
    };
    releases.iter().filter_map(entry).collect()
}

fn version_in(tarball: &Path) -> Option<String> {
    let mut file = File::open(tarball).ok()?;
    let start = first_bytes(&mut file).ok()?;
    // It stands at the beginning; what follows need not be read.
    let found = Tarball::new(decompressed(&start, BufReader::new(file))).each(
        |_| None,
        |entry| {
            if inside(&entry.path_bytes()).is_none_or(|path| path != Path::new("release.MF")) {
                return Ok(());
            }
            let mut text = String::new();
            let read = entry.take(LARGEST_MANIFEST).read_to_string(&mut text);
            Err(read.ok().map(|_| text))
        },
    );
    let document = Document::parse(&found.err()??).ok()?;
    fields::text(&document.root().field("version").ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use windlass_download::Patience;

    use super::*;
    use crate::cloud_provider::OwnCpi;
    use crate::report::{End, Screen};

    fn tarball(path: &Path, manifest: &str) {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for (name, content) in [("./release.MF", manifest), ("./jobs/x.tgz", "x")] {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, name, content.as_bytes()).unwrap();
        }
        let mut bytes = archive.into_inner().unwrap().finish().unwrap();
        // What follows the manifest is not read.
        bytes.truncate(bytes.len() - 8);
        File::create(path).unwrap().write_all(&bytes).unwrap();
    }

    #[derive(Debug)]
    struct Nobody;

    impl Screen for Nobody {
        fn line(&self, _: &str) {}
        fn begin_stage(&self, _: &str) {}
        fn begin_step(&self, _: &str) {}
        fn status(&self, _: &str) {}
        fn end_step(&self, _: &End, _: Duration) {}
        fn end_stage(&self, _: &str, _: bool, _: Duration) {}
    }

    fn options(folder: &Path, silence: Duration) -> EnvOptions {
        EnvOptions {
            manifest_path: folder.join("env.yml"),
            manifest: String::new(),
            state_path: folder.join("state.json"),
            downloads: folder.join("downloads"),
            installations: folder.join("installations"),
            package_dir: None,
            renderer: Arc::new(windlass_render::Backends::new(None)),
            own_cpi: OwnCpi { executable: PathBuf::new(), arguments: Vec::new() },
            screen: Arc::new(Nobody),
            patience: Patience { silence, slowest: 1000, tries: 1, ..Patience::default() },
            stop: Arc::default(),
        }
    }

    /// The URL of a server that takes one request, answers so, and then sends a byte from time to time, or nothing.
    async fn server(answer: &'static [u8], dribbles: bool) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/release.tgz", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            connection.read_buf(&mut Vec::with_capacity(4096)).await.unwrap();
            connection.write_all(answer).await.unwrap();
            loop {
                tokio::time::sleep(Duration::from_millis(20)).await;
                if dribbles && connection.write_all(b".").await.is_err() {
                    return;
                }
            }
        });
        url
    }

    fn place(url: String) -> ReleasePlace {
        let sha1 = Some("da39a3ee5e6b4b0d3255bfef95601890afd80709".to_owned());
        ReleasePlace { name: "cloud".to_owned(), url: Some(url), sha1, version: None }
    }

    #[tokio::test]
    async fn a_server_that_is_silent_slow_or_wrong_is_given_up_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path(), Duration::from_millis(300));
        let report = Report::new(options.screen.clone(), options.stop.clone());
        for (answer, dribbles, words) in [
            (&b""[..], false, "is silent; try again, or fetch the file yourself and give its path"),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
                true,
                "sends less than 1000 bytes a second; fetch the file",
            ),
            (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", false, "No release found at 'http://127.0.0.1:"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno", false, "another one: look at url and sha1"),
        ] {
            let error = place(server(answer, dribbles).await).fetch(&options, &report).await.unwrap_err();
            let said = windlass_contract::explain(&error);
            assert!(said.starts_with("the release 'cloud' is not to be had") && said.contains(words), "{said}");
            assert_eq!(std::fs::read_dir(&options.downloads).unwrap().count(), 0, "{words}: nothing stays");
        }
    }

    #[tokio::test]
    async fn who_stops_does_not_wait_for_a_server() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path(), Duration::from_secs(600));
        let report = Report::new(options.screen.clone(), options.stop.clone());
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nthe beginning";
        let place = place(server(answer, false).await);
        let stopping = async {
            while std::fs::read_dir(&options.downloads).map_or(0, Iterator::count) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            options.stop.store(true, std::sync::atomic::Ordering::SeqCst);
        };
        let (fetched, ()) = tokio::join!(place.fetch(&options, &report), stopping);
        assert!(matches!(fetched, Err(EnvError::Stopped)), "{fetched:?}");
        assert_eq!(std::fs::read_dir(&options.downloads).unwrap().count(), 0, "no part of it stays");
    }

    #[test]
    fn versions_come_from_tarballs_that_are_here_and_otherwise_from_the_manifest() {
        let (folder, downloads) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        tarball(&folder.path().join("local.tgz"), "name: local\nversion: '1.10'\n");
        let url = "https://releases.example/fetched.tgz";
        tarball(&kept_path(url, "abc", downloads.path()), "name: fetched\nversion: 2+dev.1\n");
        let text = format!(
            "releases:\n- {{name: local, url: 'file://local.tgz', version: 1.9}}\n- {{name: fetched, url: '{url}', sha1: abc}}\n\
             - {{name: elsewhere, url: 'https://releases.example/x.tgz', version: 12}}\n- {{name: unknown, url: 'file://no.tgz'}}\n"
        );
        let document = Document::parse(&text).unwrap();
        let list = document.root().optional_list("releases").unwrap();
        let places: Vec<_> = list.iter().map(|at| ReleasePlace::read(at).unwrap()).collect();
        let found = entries(&places, &[], folder.path(), downloads.path());
        let told: Vec<_> = found.iter().map(|it| (it.name.as_str(), it.version.as_str())).collect();
        assert_eq!(told, [("local", "1.10"), ("fetched", "2+dev.1"), ("elsewhere", "12")]);
        assert!(found.iter().all(|it| it.id.parse::<Uuid>().is_ok()));
    }
}

//! Downloads from servers that do not do as they should.

#![allow(clippy::disallowed_methods, reason = "tests write as they like")]
#![allow(clippy::unwrap_used)]

mod server;

use std::time::{Duration, Instant};

use windlass_download::{Download, DownloadError, KeptError, Patience};

use self::server::{Answer, Server};

const PATIENCE: Patience = Patience {
    connect: Duration::from_secs(5),
    silence: Duration::from_millis(300),
    slowest: 1000,
    tries: 3,
    pause: Duration::from_millis(1),
};

fn content() -> Vec<u8> {
    (0..1_000_000u32).flat_map(u32::to_le_bytes).collect()
}

/// What was fetched from a server that answers so, in this order; the last answer is repeated.
async fn fetch(answers: Vec<Answer>) -> (Result<Vec<u8>, String>, Vec<String>) {
    let server = Server::start(answers);
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("file");
    let result = Download::of("release").with_patience(PATIENCE).fetch(&server.url("/file"), &into).await;
    let result = result.map(|()| std::fs::read(&into).unwrap()).map_err(|error| explained(&error));
    if result.is_err() {
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing stays");
    }
    (result, server.ranges())
}

fn explained(error: &DownloadError) -> String {
    let mut said = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        said.push_str(&format!(": {error}"));
        cause = error.source();
    }
    said
}

#[tokio::test]
async fn an_interrupted_download_goes_on_where_it_was() {
    let content = content();
    let (cut, stalled) = (Answer::cut(&content, 1_000_000), Answer::stalled(&content, 2_000_000));
    let (fetched, ranges) = fetch(vec![cut, stalled, Answer::whole(&content)]).await;
    assert!(fetched.unwrap() == content, "it is another file");
    assert_eq!(ranges, ["", "bytes=1000000-", "bytes=3000000-"]);
}

/// A director's threads read such answers, and answered nobody else for seconds, without end.
#[tokio::test]
async fn a_server_that_never_comes_to_its_answer_is_given_up_and_keeps_nobody_else_busy() {
    let ticking = async {
        let mut longest = Duration::ZERO;
        loop {
            let asleep = Instant::now();
            tokio::time::sleep(Duration::from_millis(10)).await;
            longest = longest.max(asleep.elapsed());
            assert!(longest < Duration::from_secs(2), "others waited for {longest:?}");
        }
    };
    let told = tokio::select! {
        (fetched, _) = fetch(vec![Answer::endless_interim()]) => fetched.unwrap_err(),
        () = ticking => unreachable!(),
    };
    assert!(told.contains("is silent"), "{told}");
}

#[tokio::test]
async fn a_file_that_changed_meanwhile_is_fetched_from_its_start() {
    let (old, new) = (content(), vec![7; 100_000]);
    let (fetched, ranges) = fetch(vec![Answer::cut(&old, 50_000), Answer::whole(&new).tagged("other")]).await;
    assert!(fetched.unwrap() == new);
    assert_eq!(ranges, ["", "bytes=50000-"]);
    // One whose sameness nobody can tell, as well.
    let (fetched, ranges) = fetch(vec![Answer::cut(&old, 50_000).untagged(), Answer::whole(&new)]).await;
    assert!(fetched.unwrap() == new);
    assert_eq!(ranges, ["", ""]);
}

#[tokio::test]
async fn servers_that_send_another_part_than_was_asked_for_are_asked_for_all() {
    let content = content();
    let shifted = Answer::whole(&content).shifted();
    let (fetched, ranges) = fetch(vec![Answer::cut(&content, 1000), shifted, Answer::whole(&content)]).await;
    assert!(fetched.unwrap() == content, "no part stands at another's place");
    assert_eq!(ranges, ["", "bytes=1000-", ""]);
}

#[tokio::test]
async fn a_server_that_announces_more_than_it_has_is_given_up() {
    let content = vec![1; 1000];
    let (fetched, ranges) = fetch(vec![Answer::whole(&content).announcing(2000)]).await;
    let said = fetched.unwrap_err();
    assert!(said.contains("/file' cannot be fetched") || said.contains("sent 1000 of 2000 bytes"), "{said}");
    assert!(ranges.len() <= 8, "{ranges:?}");
    let (fetched, _) = fetch(vec![Answer::whole(&content).announcing(1 << 60)]).await;
    let said = fetched.unwrap_err();
    assert!(said.contains("make room there"), "before a byte is written: {said}");
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    let begun = Instant::now();
    let (fetched, ranges) = fetch(vec![Answer::silence()]).await;
    let said = fetched.unwrap_err();
    assert!(said.contains("is silent; try again, or fetch the file yourself"), "{said}");
    assert_eq!(ranges.len(), 3);
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn a_server_that_sends_a_byte_from_time_to_time_is_given_up() {
    let (fetched, ranges) = fetch(vec![Answer::dribbled(&[1; 1000])]).await;
    let said = fetched.unwrap_err();
    assert!(
        said.ends_with("sends less than 1000 bytes a second; fetch the file yourself and give its path instead"),
        "{said}"
    );
    assert_eq!(ranges.len(), 1, "another try would go on for as long");
}

#[tokio::test]
async fn what_is_not_there_is_told_at_once_and_what_is_busy_is_asked_again() {
    let (fetched, asked) = fetch(vec![Answer::status("404 Not Found")]).await;
    assert!(fetched.unwrap_err().starts_with("No release found at 'http://127.0.0.1:"));
    assert_eq!(asked.len(), 1);
    let (fetched, asked) = fetch(vec![Answer::status("403 Forbidden")]).await;
    assert!(fetched.unwrap_err().contains("answers 403 Forbidden; fetch the file yourself"));
    assert_eq!(asked.len(), 1);
    let (fetched, asked) = fetch(vec![Answer::status("503 Busy"), Answer::whole(b"there")]).await;
    assert_eq!((fetched.unwrap(), asked.len()), (b"there".to_vec(), 2));
}

#[tokio::test]
async fn redirects_are_followed_but_not_for_ever() {
    let target = Server::start(vec![Answer::whole(b"moved")]);
    let (fetched, _) = fetch(vec![Answer::redirect(&target.url("/file"))]).await;
    assert_eq!(fetched.unwrap(), b"moved");
    let (fetched, asked) = fetch(vec![Answer::redirect("/file")]).await;
    assert!(fetched.unwrap_err().contains("redirect"));
    assert_eq!(asked.len(), 10);
    let (fetched, _) = fetch(vec![Answer::redirect("file:///etc/passwd")]).await;
    let said = fetched.unwrap_err();
    assert!(said.contains("answers 302 Found") || said.contains("cannot be fetched"), "{said}");
}

#[tokio::test]
async fn what_urls_hide_is_not_told() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("file");
    for answer in [Answer::status("404 Not Found"), Answer::status("403 Forbidden"), Answer::whole(b"x").announcing(9)]
    {
        let server = Server::start(vec![answer]);
        let url = server.url("/file?signature=marked-query").replace("http://", "http://user:marked-password@");
        let error = Download::of("stemcell").with_patience(PATIENCE).fetch(&url, &into).await.unwrap_err();
        let said = format!("{} {error:?}", explained(&error));
        assert!(!said.contains("marked"), "{said}");
    }
}

/// A test of its own process would be needed to set variables, so another one is started: this binary, with one test.
#[test]
fn proxies_of_the_environment_are_used_where_bosh_uses_them() {
    let told = |variables: &[(&str, &str)], target: &str| {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "child_that_fetches", "--nocapture"]).env_clear();
        child.env("WINDLASS_FETCH", target).envs(variables.iter().copied());
        String::from_utf8(child.output().unwrap().stdout).unwrap()
    };
    let proxy = Server::start(vec![Answer::whole(b"through the proxy")]);
    let there = Server::start(vec![Answer::whole(b"from there")]);
    let (proxied, target) = (proxy.url(""), there.url("/file"));
    assert!(told(&[], &target).contains("from there"));
    assert!(told(&[("HTTP_PROXY", &proxied)], &target).contains("through the proxy"));
    assert!(told(&[("http_proxy", &proxied)], &target).contains("through the proxy"));
    assert!(told(&[("ALL_PROXY", &proxied)], &target).contains("through the proxy"));
    assert!(told(&[("http_proxy", &proxied), ("NO_PROXY", "127.0.0.1")], &target).contains("from there"));
    let socks = server::socks();
    assert!(told(&[("BOSH_ALL_PROXY", &socks.url())], &target).contains("from there"));
    assert_eq!(socks.connections(), 1);
    assert!(told(&[("BOSH_ALL_PROXY", &socks.url()), ("NO_PROXY", "127.0.0.1")], &target).contains("from there"));
    assert_eq!(socks.connections(), 1);
}

#[tokio::test]
async fn child_that_fetches() {
    let Ok(url) = std::env::var("WINDLASS_FETCH") else { return };
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("file");
    Download::of("stemcell").with_patience(PATIENCE).through_bosh_proxy().fetch(&url, &into).await.unwrap();
    // For the process that started this one.
    #[allow(clippy::print_stdout)]
    {
        println!("{}", std::fs::read_to_string(&into).unwrap());
    }
}

#[tokio::test]
async fn a_download_is_kept_and_checked_each_time() {
    let server = Server::start(vec![Answer::whole(b"a release"), Answer::whole(b"something else")]);
    let folder = tempfile::tempdir().unwrap();
    let digest = windlass_archive::digest::sha1(&mut &b"a release"[..]).unwrap();
    let download = Download::of("release").with_patience(PATIENCE);
    let kept = download.fetch_once(&server.url("/file"), &digest, folder.path()).await.unwrap();
    assert_eq!(std::fs::read(&kept).unwrap(), b"a release");
    assert_eq!(download.fetch_once(&server.url("/file"), &digest, folder.path()).await.unwrap(), kept);
    assert_eq!(server.ranges().len(), 1, "what is kept is not fetched again");
    // Damaged, it is fetched again; and what comes then is another file.
    std::fs::write(&kept, "a damaged one").unwrap();
    let error = download.fetch_once(&server.url("/file"), &digest, folder.path()).await.unwrap_err();
    assert!(matches!(error, KeptError::Differs { .. }), "{error}");
    assert!(error.to_string().contains("look at url and sha1"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing half-fetched stays");
    let unusable = download.fetch_once(&server.url("/file"), "", folder.path()).await.unwrap_err();
    assert!(matches!(unusable, KeptError::NoDigest { .. }), "{unusable}");
}

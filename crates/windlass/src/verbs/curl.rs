//! `windlass curl`: a request to the director, and its answer as it is.

use std::str::FromStr;

use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::cli::CurlArgs;
use crate::failure::Failure;
use crate::session::{Session, While};

pub(super) async fn run(session: &mut Session<'_>, arguments: &CurlArgs) -> Result<(), Failure> {
    let mut headers = HeaderMap::new();
    for header in &arguments.headers {
        let wrong = || Failure::Header(header.clone());
        let (name, value) = header.split_once(':').ok_or_else(wrong)?;
        let name = HeaderName::from_str(name.trim()).map_err(|_| wrong())?;
        headers.append(name, HeaderValue::from_str(value.trim()).map_err(|_| wrong())?);
    }
    let read =
        |path: &std::path::PathBuf| std::fs::read(path).map_err(|source| Failure::File { path: path.clone(), source });
    let body = arguments.body.as_ref().map(read).transpose()?;
    let method = Method::from_str(&arguments.method).map_err(|_| Failure::Header(arguments.method.clone()))?;
    let slash = if arguments.path.starts_with('/') { "" } else { "/" };
    let path = format!("{slash}{}", arguments.path);
    let answer = session.director.raw(method, &path, &headers, body).await.while_("asking the director")?;
    if arguments.show_headers {
        let mut text = format!("HTTP/1.1 {}\r\n", answer.status);
        for (name, value) in &answer.headers {
            text.push_str(&format!("{name}: {}\r\n", String::from_utf8_lossy(value.as_bytes())));
        }
        session.screen.block(&(text + "\r\n"));
    }
    session.screen.block(&String::from_utf8_lossy(&answer.body));
    let good = answer.status.is_success() || answer.status.is_redirection();
    if good { Ok(()) } else { Err(Failure::CurlStatus(answer.status)) }
}

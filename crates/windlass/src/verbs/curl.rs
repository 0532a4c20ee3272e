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
        let mut lines: Vec<String> = answer.headers.iter().map(|(name, value)| line(name, value)).collect();
        lines.sort();
        text.push_str(&lines.concat());
        session.screen.block(&(text + "\r\n"));
    }
    session.screen.block(&String::from_utf8_lossy(&answer.body));
    let good = answer.status.is_success() || answer.status.is_redirection();
    if good { Ok(()) } else { Err(Failure::CurlStatus(answer.status)) }
}

/// With the large letters that BOSH's client writes.
fn line(name: &HeaderName, value: &HeaderValue) -> String {
    let words: Vec<String> = name
        .as_str()
        .split('-')
        .map(|word| {
            let (first, rest) = word.split_at(word.len().min(1));
            format!("{}{rest}", first.to_ascii_uppercase())
        })
        .collect();
    format!("{}: {}\r\n", words.join("-"), String::from_utf8_lossy(value.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_written_as_by_boshs_client() {
        let line = |name| line(&HeaderName::from_static(name), &HeaderValue::from_static("x"));
        assert_eq!(line("content-type"), "Content-Type: x\r\n");
        assert_eq!(line("date"), "Date: x\r\n");
    }
}

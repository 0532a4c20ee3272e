//! What all calls of a run have in common: rules that each answer keeps, whatever was asked.

use std::sync::Arc;

use windlass_contract::cpi::ErrorType;

use crate::answer::Answer;

/// A rule for every answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// One JSON object with `result`, `error` and `log`, and nothing else on stdout.
    Envelope,
    /// Exit status 0.
    ExitZero,
    /// Both streams end with the process.
    StreamsEnd,
    /// The whole request is read.
    ReadsAll,
    /// A type that callers know, a message, no result beside it.
    ErrorShape,
    /// No message that callers take for "not implemented".
    NoCompatPrefix,
    OneLine,
    /// Valid UTF-8 without a byte-order mark.
    Utf8,
    /// None of the secrets that were sent is in the answer or on stderr.
    NoSecrets,
}

/// What every run puts into secret places, to see whether it comes out anywhere.
pub(crate) const CANARY: &str = "canary-5ecret-must-not-show";

/// How many broken rules are kept with their calls.
const KEPT: usize = 20;
/// Of calls that are longer than so many bytes, one is kept for each rule: a CPI that writes without end does it in every call.
const LONG: usize = 1 << 20;

/// Rules that were broken.
#[derive(Debug, Default)]
pub(crate) struct BrokenRules {
    pub(crate) calls: usize,
    pub(crate) errors: usize,
    broken: Vec<(Rule, String, Arc<Answer>)>,
}

impl BrokenRules {
    pub(crate) fn note(&mut self, answer: &Answer) {
        self.calls += 1;
        self.errors += usize::from(answer.response.as_ref().is_ok_and(|response| response.error.is_some()));
        let exchange = &answer.exchange;
        let length = exchange.request.len() + exchange.stdout.len() + exchange.stderr.len();
        let most = if length > LONG { 1 } else { KEPT };
        let mut broken = broken_rules(answer);
        broken.retain(|(rule, _)| self.broken.iter().filter(|(known, ..)| known == rule).count() < most);
        if !broken.is_empty() {
            let answer = Arc::new(answer.clone());
            self.broken.extend(broken.into_iter().map(|(rule, what)| (rule, what, Arc::clone(&answer))));
        }
    }

    /// The first calls that broke a rule.
    pub(crate) fn broken(&self, rule: Rule) -> Vec<(String, Answer)> {
        self.broken
            .iter()
            .filter(|(broken, ..)| *broken == rule)
            .map(|(_, what, answer)| (what.clone(), Answer::clone(answer)))
            .collect()
    }
}

fn broken_rules(answer: &Answer) -> Vec<(Rule, String)> {
    let mut broken = Vec::new();
    let exchange = &answer.exchange;
    let mut note = |rule, wrong: bool, what: String| {
        if wrong {
            broken.push((rule, what));
        }
    };
    note(Rule::StreamsEnd, exchange.streams_lingered, "its streams stayed open after it had ended".into());
    note(Rule::ReadsAll, exchange.request_unread, "it ended without reading the whole request".into());
    note(Rule::Utf8, std::str::from_utf8(&exchange.stdout).is_err(), "stdout is not UTF-8".into());
    note(Rule::Utf8, exchange.stdout.starts_with(b"\xef\xbb\xbf"), "stdout begins with a byte-order mark".into());
    let holds = |bytes: &[u8]| bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes());
    note(Rule::NoSecrets, holds(&exchange.stdout), "a secret of the request is on stdout".into());
    note(Rule::NoSecrets, holds(&exchange.stderr), "a secret of the request is on stderr".into());
    let response = match &answer.response {
        Ok(response) => response,
        Err(what) => {
            // What was no request may stay without an answer; a check of its own looks at that.
            let is_request =
                serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&exchange.request).is_ok();
            note(Rule::Envelope, is_request, what.clone());
            return broken;
        }
    };
    note(Rule::ExitZero, !exchange.exit.is_some_and(|exit| exit.success()), exchange.ending());
    if let Some(error) = &response.error {
        note(Rule::ErrorShape, !error.kind.is_usual(), format!("no caller knows the error type '{}'", error.kind));
        note(Rule::ErrorShape, error.message.trim().is_empty(), "the error has no message".into());
        note(Rule::ErrorShape, !response.result.is_null(), "there is a result beside the error".into());
        note(Rule::OneLine, error.message.contains('\n'), "the message has several lines".into());
        let prefix = error.message.starts_with("Invalid Method:") && error.kind == ErrorType::CloudError;
        let honest = error.kind == ErrorType::NotImplemented;
        let prefix = prefix || !honest && error.message.starts_with("Method is not known, got");
        note(Rule::NoCompatPrefix, prefix, "callers take this message for 'not implemented'".into());
    }
    broken
}

//! Errors of templates without the values of properties, for logs, events and their readers.
//!
//! A template can put a property into the message of its error in any form: whole, quoted, shortened, encoded. So nothing is looked
//! for. A word of a message is shown if it is one of the release's own, as its templates and its `spec` have it, or one that
//! Ruby says in its errors; everything else may be a value and is left out. Template, line and construct are the release's own.

use std::collections::HashSet;

use windlass_release::Job;

use crate::error::{JobErrors, RenderError, TemplateError, Unsupported};
use crate::templates;

/// What stands in place of words that may be values.
const REDACTED: &str = "<redacted>";
/// How many letters of a message are shown.
const LONGEST: usize = 2000;
/// How many templates of a job are named.
const MOST_ERRORS: usize = 20;
/// As in `'["a.b"]'`; what has more signs than that, but for those that names have between their parts, is no word of anybody.
const MOST_SIGNS: usize = 8;

/// What Ruby 3.1, its libraries and this crate say about mistakes.
const VOCABULARY: &str = "
    a access address after an and any argument arguments array as at be because been before block boolean bounds but by byte
    bytes can Can cannot case character class coerced column comparison constant context conversion convert could data date deep
    defined did digest divided does doesn don duplicate duplicated element empty end ended ends enough error exceeded exist
    expect expected expecting extra failed false few file find float for format found frozen from get given got had has hash
    have host if illegal implicit in index initialize input instance instances integer into invalid is it its key keyword
    keywords level library line link load local long lookup malformed many mapping match matching may memory message method
    MiB missing modify must name negative never nil no node non none not nothing null number object of on one only or out
    outside parse parser parsing path pattern port position positive private property properties protected public range read
    required result ruby Ruby s scalar scheme sequence size small stack start steps stopped string stringified subclass such
    symbol syntax t taken template that the this to token too tried true type unable undefined unexpected uninitialized
    unknown unsupported URI used uses valid value values variable was were when which while width with without written
    wrong yet yield you zero
    Array BackCompatOpenStruct Base64 BasicObject Bosh Class Comparable Date DateTime Digest Enumerator EvaluationContext
    EvaluationLink EvaluationLinkInstance Encoding ERB Errno FalseClass Float Hash Integer IPAddr JSON Kernel LoadError Module
    NilClass Numeric Object OpenSSL OpenStruct ParserError Proc Psych Range Rational Regexp Set Shellwords SHA1 SHA256 String
    StringIO Struct Symbol Template Time TrueClass UTF YAML";

impl RenderError {
    /// The same without the values that `job` was rendered with.
    pub fn without_values(&self, job: &Job) -> Self {
        let words = Words::of(job);
        match self {
            Self::NeedsRuby(why) => Self::NeedsRuby(words.unsupported(why)),
            Self::Failed(JobErrors { job, errors }) => {
                let mut shown: Vec<_> =
                    errors.iter().take(MOST_ERRORS).map(|error| words.template_error(error)).collect();
                let left = errors.len() - shown.len();
                if let (Some(last), 1..) = (shown.last_mut(), left) {
                    last.message.push_str(&format!("; {left} more templates failed"));
                }
                Self::Failed(JobErrors { job: job.clone(), errors: shown })
            }
            Self::NoRuby { job, why, ruby } => {
                Self::NoRuby { job: job.clone(), why: Box::new(words.unsupported(why)), ruby: ruby.clone() }
            }
            // Both have no words but those of the machine and the template.
            Self::Ruby(_) | Self::Syntax { .. } => self.clone(),
        }
    }
}

/// The words that are no secrets.
struct Words<'a>(HashSet<&'a str>);

impl<'a> Words<'a> {
    fn of(job: &'a Job) -> Self {
        let mut words: HashSet<&str> = VOCABULARY.split_whitespace().collect();
        for template in templates::of(job) {
            words.extend(runs(template.source).chain(runs(template.destination)).chain(runs(template.content)));
        }
        words.extend(job.spec.properties.keys().flat_map(|name| runs(name)));
        for kind in ["consumes", "provides"] {
            let links = job.spec.raw.get(kind).and_then(serde_json::Value::as_array);
            let texts = links.into_iter().flatten().flat_map(|link| [link.get("name"), link.get("type")]).flatten();
            words.extend(texts.filter_map(serde_json::Value::as_str).flat_map(runs));
        }
        Self(words)
    }

    fn is_known(&self, word: &str) -> bool {
        let is_sign = |letter: &char| !is_of_a_run(*letter) && !".,:/-".contains(*letter);
        let signs = word.chars().filter(is_sign).count();
        // Numbers of arguments, lines and columns.
        let is_small_number = |run: &str| run.len() <= 2 && run.bytes().all(|byte| byte.is_ascii_digit());
        signs <= MOST_SIGNS && runs(word).all(|run| is_small_number(run) || self.0.contains(run))
    }

    fn without_values(&self, message: &str) -> String {
        let mut shown = String::new();
        let mut left_out = false;
        for (at, line) in message.lines().enumerate() {
            if at > 0 {
                shown.push('\n');
            }
            for word in line.split_inclusive(char::is_whitespace) {
                let (word, space) = word.split_at(word.trim_end().len());
                if shown.len() > LONGEST {
                    return shown + "…";
                }
                match self.is_known(word) {
                    true => shown.push_str(word),
                    // Several words in a row may be one value.
                    false if left_out => continue,
                    false => shown.push_str(REDACTED),
                }
                left_out = !self.is_known(word);
                shown.push_str(space);
            }
        }
        shown.truncate(shown.trim_end().len());
        shown
    }

    fn template_error(&self, error: &TemplateError) -> TemplateError {
        TemplateError { message: self.without_values(&error.message), ..error.clone() }
    }

    fn unsupported(&self, why: &Unsupported) -> Unsupported {
        // These words are our own, but for what they quote.
        let parts = why.construct.split('\'').enumerate();
        let shown = parts.map(|(at, part)| match at % 2 == 0 || self.is_known(part) {
            true => part,
            false => REDACTED,
        });
        // What the parser says quotes the template.
        let construct = if why.is_syntax { why.construct.clone() } else { shown.collect::<Vec<_>>().join("'") };
        Unsupported { construct, ..why.clone() }
    }
}

fn is_of_a_run(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Letters and digits without anything between them.
fn runs(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter| !is_of_a_run(letter)).filter(|run| !run.is_empty())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;
    use windlass_release::JobSpec;

    use super::*;
    use crate::{Native, Renderer};

    fn job(template: &str) -> Job {
        let spec =
            "name: app\ntemplates: {t.erb: t}\nproperties: {db.password: {}}\nconsumes: [{name: peer, type: db}]\n";
        Job {
            spec: JobSpec::parse(spec, "app").unwrap(),
            templates: BTreeMap::from([("t.erb".to_owned(), template.to_owned())]),
            monit: BTreeMap::from([("monit".to_owned(), String::new())]),
        }
    }

    /// What Ruby says, as others read it.
    fn told(template: &str, message: &str) -> String {
        let error = TemplateError { template: "t.erb".into(), line: Some(7), message: message.to_owned() };
        let error = RenderError::Failed(JobErrors { job: "app".into(), errors: vec![error] });
        let RenderError::Failed(mut shown) = error.without_values(&job(template)) else { panic!("{error}") };
        shown.errors.remove(0).message
    }

    #[test]
    fn values_are_left_out_in_whatever_form_and_the_words_of_the_release_stay() {
        let template = "<%= p('db.password').frobnicate %> <% raise 'the key is bad' %>";
        for (message, expected) in [
            ("undefined method `frobnicate' for \"s3cret\":String", "undefined method `frobnicate' for <redacted>"),
            ("undefined method `frobnicate' for nil:NilClass", "undefined method `frobnicate' for nil:NilClass"),
            ("the key is bad: s3cret", "the key is bad: <redacted>"),
            ("unexpected token at 'my pass word'", "unexpected token at <redacted>"),
            ("invalid value for Integer(): \"s3cret\"", "invalid value for Integer(): <redacted>"),
            ("no implicit conversion of nil into String", "no implicit conversion of nil into String"),
            (
                "wrong number of arguments (given 1, expected 2..13)",
                "wrong number of arguments (given 1, expected 2..13)",
            ),
            ("Can't find property '[\"db.password\"]'", "Can't find property '[\"db.password\"]'"),
            ("Can't find link 'peer'", "Can't find link 'peer'"),
            ("czNjcmV0 7 4711 !!!$$$!!!%%% x", "<redacted> 7 <redacted>"),
            ("a:\nb\ns3cret here", "a:\n<redacted>"),
        ] {
            assert_eq!(told(template, message), expected, "{message}");
        }
    }

    #[test]
    fn what_has_no_end_is_cut_and_many_errors_are_counted() {
        assert!(told("", &"value ".repeat(1 << 20)).len() < LONGEST + 20);
        let error = TemplateError { template: "t.erb".into(), line: None, message: "nil".into() };
        let errors = JobErrors { job: "app".into(), errors: vec![error; 10_000] };
        let text = RenderError::Failed(errors).without_values(&job("")).to_string();
        assert!(text.len() < 4096 && text.contains("; 9980 more templates failed"), "{text}");
    }

    #[test]
    fn template_line_and_construct_are_told_and_a_message_of_the_template_keeps_its_words() {
        let job = job("\n<% raise \"bad password '#{p('db.password')}' given\" %>");
        let error = Native.render(&job, &json!({"properties": {"db": {"password": "hunter2"}}})).unwrap_err();
        assert!(error.to_string().contains("hunter2"));
        let told = error.without_values(&job).to_string();
        assert!(told.ends_with("Error filling in template 't.erb' (line 2: bad password <redacted> given)"), "{told}");
        let job = self::job("<%= p('db.password').frobnicate %>");
        let spec = json!({"properties": {"db": {"password": "hunter2"}}});
        let error = crate::Backends::new(None).render(&job, &spec).unwrap_err().without_values(&job).to_string();
        assert!(error.contains("template 't.erb' (line 1) needs Ruby for") && error.contains("frobnicate"), "{error}");
    }
}

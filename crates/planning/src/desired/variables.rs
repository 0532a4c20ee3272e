//! Variables. Their values come from the client: this director has no config server that could generate or look them up.

use windlass_manifest::{At, Content, Document};

use super::fields::Fields;
use super::findings::Findings;

const KEYS: [&str; 6] = ["name", "type", "options", "update_mode", "update", "consumes"];

/// The `variables` block. Clients that fill in values leave it in place, so its names are accepted.
pub(super) fn read_variables(root: &mut Fields<'_, '_>) {
    let mut names: Vec<String> = Vec::new();
    for at in root.list("variables") {
        let Some(mut variable) = Fields::of(&at, &KEYS, root.findings()) else { continue };
        variable.text("type");
        let Some(name) = variable.text("name") else { continue };
        if names.contains(&name.value) {
            variable.findings().push(name.problem(format!("the variable '{}' is there already", name.value)));
        }
        names.push(name.value);
    }
}

/// Refuses every `((variable))` that got no value.
pub fn refuse_unfilled(document: &Document, findings: &mut Findings) {
    look(&document.root(), findings);
}

fn look(at: &At<'_>, findings: &mut Findings) {
    match &at.node().content {
        Content::String(text) => {
            if let Some(name) = placeholder(text) {
                findings.push(at.problem(format!(
                    "the variable (({name})) has no value, and there is no config server that knows it; \
                     give it to the client with -v {name}=VALUE or --vars-store FILE"
                )));
            }
        }
        Content::List(_) => at.list().into_iter().flatten().for_each(|element| look(&element, findings)),
        Content::Object(_) => at.entries().into_iter().flatten().for_each(|(_, value)| look(&value, findings)),
        _ => {}
    }
}

/// The first name between double parentheses.
fn placeholder(text: &str) -> Option<&str> {
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '!'))
    };
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("((") {
        match after.split_once("))") {
            Some((name, _)) if is_name(name) => return Some(name.trim_start_matches('!')),
            _ => rest = after,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_without_a_value_is_refused_where_it_stands() {
        let document = Document::parse("a: {b: [x, 'pre ((pass)) post']}\nc: '((not a name)) ((('\n").unwrap();
        let mut findings = Findings::new();
        refuse_unfilled(&document, &mut findings);
        assert_eq!(findings.problems().len(), 1, "{findings}");
        assert!(findings.to_string().starts_with("a.b[1]: the variable ((pass)) has no value"), "{findings}");
    }
}

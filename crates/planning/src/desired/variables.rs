//! Variables. Their values come from the client: this director has no config server that could generate or look them up.

use windlass_manifest::{At, Content, Document};

use super::fields::Fields;
use super::findings::Findings;
use crate::software::placeholder;

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
    look(&document.root(), &[], findings);
}

/// The same for a manifest that is only looked at: what its `variables` name may get its value when it is deployed.
pub fn refuse_unknown_variables(document: &Document, findings: &mut Findings) {
    let listed = document.root().field("variables").ok().and_then(|at| at.list().ok()).unwrap_or_default();
    let name = |at: &At<'_>| at.field("name").ok()?.string().ok().map(str::to_owned);
    let names: Vec<String> = listed.iter().filter_map(name).collect();
    look(&document.root(), &names, findings);
}

fn look(at: &At<'_>, known: &[String], findings: &mut Findings) {
    match &at.node().content {
        Content::String(text) => {
            let is_known = |name: &str| known.iter().any(|known| known == name.split('.').next().unwrap_or(name));
            if let Some(name) = placeholder(text).filter(|name| !is_known(name)) {
                findings.push(at.problem(format!(
                    "the variable (({name})) has no value, and there is no config server that knows it; \
                     give it to the client with -v {name}=VALUE or --vars-store FILE"
                )));
            }
        }
        Content::List(_) => at.list().into_iter().flatten().for_each(|element| look(&element, known, findings)),
        Content::Object(_) => at.entries().into_iter().flatten().for_each(|(_, value)| look(&value, known, findings)),
        _ => {}
    }
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

    #[test]
    fn a_look_takes_variables_that_a_deploy_may_give_values_to() {
        let text = "variables: [{name: cert, type: certificate}]\na: ['((cert.ca))', '((cert))', '((certificate))']\n";
        let mut findings = Findings::new();
        refuse_unknown_variables(&Document::parse(text).unwrap(), &mut findings);
        assert_eq!(findings.problems().len(), 1, "{findings}");
        assert!(findings.to_string().starts_with("a[2]: the variable ((certificate)) has no value"), "{findings}");
    }
}

//! Variables: what a manifest defines, and where their values may stand. Values themselves are none of a plan's business: what is
//! planned and stored keeps the placeholders.

use std::collections::HashSet;

use serde_json::Value;
use windlass_manifest::placeholders::{self, Placeholder};
use windlass_manifest::{At, Content, Document};

use super::Desired;
use super::fields::Fields;
use super::findings::{Findings, Place, Placed};
use crate::dns::{DOMAIN, DnsNumbers, GroupKind, instance_name};
use crate::links::LinkProvider;

const KEYS: [&str; 6] = ["name", "type", "options", "update_mode", "update", "consumes"];
/// When an existing value is made once more.
const UPDATE_MODES: [(&str, &str); 3] =
    [("no-overwrite", "no-overwrite"), ("converge", "converge"), ("overwrite", "overwrite")];
const STRATEGIES: [(&str, bool); 2] = [("on-deploy", false), ("on-stemcell-change", true)];
/// What BOSH's director calls a definition that it cannot use.
const INVALID_DEFINITION: u32 = 560000;
/// What BOSH's director calls a name that it cannot use.
const INVALID_NAME: u32 = 540004;

/// Where values are put in late, when files are rendered. Elsewhere they would be stored with what is planned.
const LATE_IN_MANIFESTS: [&str; 11] = [
    "tags",
    "instance_groups[].tags",
    "instance_groups[].env",
    "properties",
    "instance_groups[].properties",
    "instance_groups[].jobs[].properties",
    "instance_groups[].jobs[].consumes",
    "addons[].properties",
    "addons[].jobs[].properties",
    "addons[].jobs[].consumes",
    "variables[].options",
];

/// The same in cloud configs, when a CPI is asked for a VM or a disk.
const LATE_IN_CLOUD_CONFIGS: [&str; 8] = [
    "compilation.env",
    "azs[].cloud_properties",
    "vm_types[].cloud_properties",
    "vm_extensions[].cloud_properties",
    "disk_types[].cloud_properties",
    "networks[].cloud_properties",
    "networks[].subnets[].cloud_properties",
    "compilation.cloud_properties",
];

/// The same in CPI configs, when a CPI is called.
const LATE_IN_CPI_CONFIGS: [&str; 1] = ["cpis[].properties"];

/// A variable whose value is made at deploy, if it has none.
#[derive(Debug, Clone, PartialEq)]
pub struct VariableDefinition {
    pub name: Placed<String>,
    /// Such as `password`.
    pub kind: String,
    pub options: Value,
    /// In the words of a config server; none for the usual one.
    pub update_mode: Option<&'static str>,
    /// Whether a newer value is taken only together with newer stemcells.
    pub waits_for_stemcells: bool,
    /// Names of links that a certificate has.
    pub link_names: Vec<LinkName>,
}

/// A name in a certificate under which the instances that provide a link are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkName {
    pub purpose: NamePurpose,
    /// What the link is called.
    pub from: Placed<String>,
    /// None for any.
    pub link_type: Option<String>,
    /// Whether it is for all names in the domain of the group.
    pub wildcard: bool,
}

/// Which name of a certificate it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamePurpose {
    Alternative,
    Common,
}

impl LinkName {
    const KEYS: [(&'static str, NamePurpose); 2] =
        [("alternative_name", NamePurpose::Alternative), ("common_name", NamePurpose::Common)];

    /// As DNS knows the provider's instances; none if there is no such link in the deployment.
    pub fn name_in(&self, desired: &Desired, numbers: &DnsNumbers) -> Option<String> {
        let is_it = |provider: &&LinkProvider| {
            provider.name == self.from.value && self.link_type.as_ref().is_none_or(|kind| *kind == provider.link_type)
        };
        let provider = desired.links.providers.iter().find(is_it)?;
        let group = desired.groups.iter().find(|group| group.name == provider.group)?;
        let network = group.default_network()?;
        if desired.names.short {
            let (kind, name) = match desired.names.links {
                true => (GroupKind::Link, provider.group_name()),
                false => (GroupKind::InstanceGroup, group.name.clone()),
            };
            let number = numbers.group(&desired.deployment, kind, &name);
            let network = numbers.networks.get(network).copied().unwrap_or_default();
            let first = if self.wildcard { "*".to_owned() } else { format!("q-n{network}s0") };
            return Some(format!("{first}.q-g{number}.{DOMAIN}"));
        }
        let first = if self.wildcard { "*" } else { "q-s0" };
        Some(instance_name(first, &group.name, network, &desired.deployment))
    }
}

/// The `variables` block. What it lists twice, or lacks, is told.
pub(super) fn read_variables(root: &mut Fields<'_, '_>) -> Vec<VariableDefinition> {
    let mut definitions: Vec<VariableDefinition> = Vec::new();
    let mut names = HashSet::new();
    for at in root.list("variables") {
        let Some(mut variable) = Fields::of(&at, &KEYS, root.findings()) else { continue };
        let kind = variable.text("type");
        let options = variable.object("options");
        let update_mode = variable.word("update_mode", &UPDATE_MODES);
        let update = variable.optional("update");
        let link_names = read_link_names(&mut variable);
        let waits =
            update.and_then(|at| Fields::of(&at, &["strategy"], variable.findings())?.word("strategy", &STRATEGIES));
        let (Some(name), Some(kind)) = (variable.text("name"), kind) else { continue };
        if let Some(why) = wrong_name(&name.value) {
            variable.findings().refuse(
                INVALID_NAME,
                Some(&name.place),
                format!("Variable name '{}': {why}", name.value),
            );
            continue;
        }
        if !names.insert(name.value.clone()) {
            let message = format!("Some name values are not unique: the variable '{}' is there already", name.value);
            variable.findings().refuse(INVALID_DEFINITION, Some(&name.place), message);
        }
        if !link_names.is_empty() && kind.value != "certificate" {
            let message = format!("Variable '{}' can not define 'consumes' key for type '{}'", name.value, kind.value);
            variable.findings().refuse(INVALID_DEFINITION, Some(&name.place), message);
        }
        let waits_for_stemcells = waits.unwrap_or_default();
        let (kind, options) = (kind.value, Value::Object(options));
        definitions.push(VariableDefinition { name, kind, options, update_mode, waits_for_stemcells, link_names });
    }
    definitions
}

fn read_link_names(variable: &mut Fields<'_, '_>) -> Vec<LinkName> {
    let mut names = Vec::new();
    let Some(at) = variable.optional("consumes") else { return names };
    let keys = LinkName::KEYS.map(|(key, _)| key);
    let Some(mut consumes) = Fields::of(&at, &keys, variable.findings()) else { return names };
    for (key, purpose) in LinkName::KEYS {
        let Some(at) = consumes.optional(key) else { continue };
        let Some(mut link) = Fields::of(&at, &["from", "link_type", "properties"], consumes.findings()) else {
            continue;
        };
        let link_type = link.optional_text("link_type").map(|kind| kind.value);
        let wildcard = link.object("properties").get("wildcard") == Some(&Value::Bool(true));
        let Some(from) = link.text("from") else { continue };
        names.push(LinkName { purpose, from, link_type, wildcard });
    }
    names
}

/// Names of variables have no parts.
fn wrong_name(name: &str) -> Option<&'static str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/');
    if !name.chars().all(allowed) {
        return Some("it may have letters, digits, '-', '_' and '/' only");
    }
    Placeholder { text: name }.problem()
}

/// Refuses each `((variable))` of a cloud or CPI config that stands where values are not put in late, or has no absolute name. Those
/// of teams have none at all: values could bring what the config itself may not have.
pub fn refuse_misplaced_in_config(kind: &str, is_of_team: bool, document: &Document, findings: &mut Findings) {
    let late: &[&str] = match (kind, is_of_team) {
        ("cloud", false) => &LATE_IN_CLOUD_CONFIGS,
        ("cpi", false) => &LATE_IN_CPI_CONFIGS,
        _ => &[],
    };
    let known = findings.problems().len();
    look(&document.root(), late, findings);
    if findings.problems().len() > known {
        return;
    }
    let mut relative = RelativeNames::default();
    relative.look(&document.root());
    if let Some(first) = &relative.first {
        let listed = relative.names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
        let message = format!(
            "Relative paths are not allowed in this context. The following must be be switched to use absolute paths: {listed}"
        );
        findings.refuse(INVALID_NAME, Some(first), message);
    }
}

/// The names of variables in a document that are not absolute, each once, in their order.
#[derive(Default)]
struct RelativeNames {
    names: Vec<String>,
    seen: HashSet<String>,
    first: Option<Place>,
}

impl RelativeNames {
    fn look(&mut self, at: &At<'_>) {
        match &at.node().content {
            Content::String(text) => self.take(at, text),
            Content::List(_) => at.list().into_iter().flatten().for_each(|element| self.look(&element)),
            Content::Object(_) => {
                for (key, value) in at.entries().into_iter().flatten() {
                    self.take(&value, key);
                    self.look(&value);
                }
            }
            _ => {}
        }
    }

    fn take(&mut self, at: &At<'_>, text: &str) {
        for placeholder in placeholders::in_text(text).filter(|placeholder| !placeholder.name().starts_with('/')) {
            self.first.get_or_insert_with(|| Place::of(at));
            if self.seen.insert(placeholder.name().to_owned()) {
                self.names.push(placeholder.name().to_owned());
            }
        }
    }
}

/// Refuses each `((variable))` of a manifest or a runtime config that stands where values are not put in late, or has no proper name.
pub fn refuse_misplaced(document: &Document, findings: &mut Findings) {
    look(&document.root(), &LATE_IN_MANIFESTS, findings);
}

fn look(at: &At<'_>, late: &[&str], findings: &mut Findings) {
    match &at.node().content {
        Content::String(text) => judge(at, text, late, findings),
        Content::List(_) => at.list().into_iter().flatten().for_each(|element| look(&element, late, findings)),
        Content::Object(_) => {
            for (key, value) in at.entries().into_iter().flatten() {
                // Values are put in there as well.
                judge(&value, key, late, findings);
                look(&value, late, findings);
            }
        }
        _ => {}
    }
}

/// One finding for all placeholders of a text that are named badly, and one for all that may not stand there: a text may have
/// hundreds of thousands of them.
fn judge(at: &At<'_>, text: &str, late: &[&str], findings: &mut Findings) {
    if findings.is_full() {
        return;
    }
    let mut found = placeholders::in_text(text).peekable();
    let Some(first) = found.peek().copied() else { return };
    let name = first.text;
    if let Some((wrong, why)) = found.find_map(|it| Some((it, it.problem()?))) {
        findings.push(at.problem(format!("the variable (({})): {why}", wrong.text)));
        return;
    }
    let problem = at.problem(format!(
        "the variable (({name})) has no value, and the director puts values into properties of jobs, env, tags, cloud_properties and properties of CPIs only; \
         give it to the client with -v {name}=VALUE or --vars-store FILE"
    ));
    let path = without_numbers(&problem.path);
    let is_below =
        |late: &&str| path.strip_prefix(*late).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
    if !late.iter().any(is_below) {
        findings.push(problem);
    }
}

/// `a[1].b[2]` becomes `a[].b[]`.
fn without_numbers(path: &str) -> String {
    let mut bare = String::new();
    let mut is_number = false;
    for letter in path.chars() {
        is_number = letter == '[' || (is_number && letter.is_ascii_digit());
        if letter == '[' || !is_number {
            bare.push(letter);
        }
    }
    bare
}

#[cfg(test)]
mod tests {
    use super::*;

    fn misplaced(text: &str) -> String {
        let mut findings = Findings::new();
        refuse_misplaced(&Document::parse(text).unwrap(), &mut findings);
        findings.to_string()
    }

    #[test]
    fn a_variable_is_refused_where_its_value_would_be_stored() {
        let found = misplaced(
            "name: d\ninstance_groups:\n- {name: g, azs: [x, 'pre ((pass)) post'], vm_type: ((v)), tags: {a: ((b))}, env: {a: ((b))}}\n",
        );
        assert_eq!(found.lines().count(), 2, "{found}");
        assert!(found.starts_with("instance_groups[0].azs[1]: the variable ((pass)) has no value"), "{found}");
    }

    fn misplaced_in_config(kind: &str, is_of_team: bool, text: &str) -> String {
        let mut findings = Findings::new();
        refuse_misplaced_in_config(kind, is_of_team, &Document::parse(text).unwrap(), &mut findings);
        findings.to_string()
    }

    /// Values would be stored with what is planned, or a team would get at what its config may not have.
    #[test]
    fn configs_have_variables_with_absolute_names_where_values_are_put_in_late() {
        let cloud = "vm_types: [{name: v, cloud_properties: {key: ((/a/b)), list: ['((/c.d)) x']}}]\n\
            networks: [{name: n, subnets: [{range: r, cloud_properties: {name: ((/n))}}]}]\n";
        assert_eq!(misplaced_in_config("cloud", false, cloud), "");
        let of_team = misplaced_in_config("cloud", true, cloud);
        assert_eq!(of_team.lines().count(), 3, "{of_team}");
        // A key becomes what a team's config may not have, such as 'privileged', as well as a value.
        let keys = "vm_types: [{name: v, cloud_properties: {((/a/b)): true}}]\n\
            disk_types: [{name: d, cloud_properties: {config: {x-((/c)): s}}}]\n";
        assert_eq!(misplaced_in_config("cloud", false, keys), "");
        let of_team = misplaced_in_config("cloud", true, keys);
        assert_eq!(of_team.lines().count(), 2, "{of_team}");
        let cpi = "cpis: [{name: a, type: b, properties: {user: {password: ((/p))}}}]\n";
        assert_eq!(misplaced_in_config("cpi", false, cpi), "");
        for (kind, text) in
            [("cpi", "cpis: [{name: ((/a))}]\n"), ("cloud", "networks: [{subnets: [{range: ((/r))}]}]\n")]
        {
            let found = misplaced_in_config(kind, false, text);
            assert!(found.contains("has no value"), "{found}");
        }
        let relative =
            misplaced_in_config("cloud", false, &cloud.replace("((/a/b))", "((a))").replace("((/n))", "((n))"));
        assert!(relative.contains("Relative paths are not allowed in this context"), "{relative}");
        assert!(relative.contains("must be be switched to use absolute paths: 'a', 'n'"), "{relative}");
        assert!(relative.contains("(vm_types[0].cloud_properties.key, line 1)"), "{relative}");
    }

    #[test]
    fn properties_and_options_may_have_variables_with_proper_names() {
        let found = misplaced(
            "properties: {a: ((a))}\nvariables: [{name: c, type: certificate, options: {common_name: ((domain))}}]\n\
             instance_groups:\n- {properties: {a: ['((/b/c.d))']}, jobs: [{properties: {x: {y: 'a ((b)) c'}}, consumes: {l: {properties: {z: ((q))}}}}]}\n\
             addons: [{jobs: [{properties: {x: ((y))}}]}]\n",
        );
        assert_eq!(found, "");
        let found = misplaced("properties: {a: ((a//b)), b: ((c.)), c: ((d/))}\n");
        assert_eq!(found.lines().count(), 3, "{found}");
    }

    fn read(text: &str) -> (Vec<VariableDefinition>, String) {
        let (document, mut findings) = (Document::parse(text).unwrap(), Findings::new());
        let mut root = Fields::of(&document.root(), &["variables"], &mut findings).unwrap();
        let read = read_variables(&mut root);
        (read, findings.to_string())
    }

    #[test]
    fn definitions_are_read_and_what_is_wrong_with_them_is_told() {
        let (read, found) = read(
            "variables:\n- {name: a, type: password}\n- {name: /x/b, type: certificate, options: {ca: a}, update_mode: converge, \
             update: {strategy: on-stemcell-change}}\n- {name: a, type: rsa}\n- {name: a.b, type: rsa}\n- {type: rsa}\n\
             - {name: m, type: rsa, update_mode: sometimes}\n- {name: n, type: certificate, consumes: {alternative_name: {from: web, properties: {wildcard: true}}}}\n\
             - {name: o, type: rsa, consumes: {common_name: {from: web}}}\n",
        );
        let named = read.iter().find(|it| it.name.value == "n").unwrap();
        assert!(named.link_names[0].wildcard && named.link_names[0].purpose == NamePurpose::Alternative);
        assert_eq!(read[0].update_mode, None);
        assert_eq!((read[1].update_mode, read[1].waits_for_stemcells), (Some("converge"), true));
        assert_eq!(read[1].options["ca"], "a");
        for expected in [
            "'a' is there already",
            "'a.b'",
            "variables[4].name",
            "sometimes",
            "'o' can not define 'consumes' key for type 'rsa'",
        ] {
            assert!(found.contains(expected), "{expected} in {found}");
        }
    }
}

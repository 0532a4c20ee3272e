//! Keys of configs that nobody knows: they have no effect, and often were meant to have one.

use windlass_manifest::Document;
use windlass_planning::desired::{CloudConfig, CpiConfig, Findings, RuntimeConfig};

use crate::screen::Screen;

/// Points them out, as a plan does for manifests. What is wrong with the config is for the director to say.
pub(super) fn show(screen: &mut Screen, kind: &str, document: &Document) {
    // BOSH's client says nothing of them.
    if screen.is_as_bosh() {
        return;
    }
    for warning in of(kind, document) {
        screen.warning(&format!("Warning: {warning}"));
    }
}

fn of(kind: &str, document: &Document) -> Vec<String> {
    let mut findings = Findings::new();
    match kind {
        "cloud" => CloudConfig::default().read(kind, document, &mut findings),
        "runtime" => RuntimeConfig::default().read(kind, document, &mut findings),
        "cpi" => CpiConfig::default().read(document, &mut findings),
        _ => {}
    }
    findings.warnings().iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(kind: &str, yaml: &str) -> String {
        of(kind, &Document::parse(yaml).unwrap()).join("\n")
    }

    #[test]
    fn a_misspelt_key_of_a_config_is_pointed_out() {
        let cloud = "azs: [{name: z1}]\ndisktypes: []\nnetworks:\n- name: default\n  subnets:\n  \
            - {range: 10.0.0.0/24, gatway: 10.0.0.1, azs: [z1]}\n";
        let said = warnings("cloud", cloud);
        assert!(said.contains("the key 'disktypes' is not known (did you mean 'disk_types'?)"), "{said}");
        assert!(said.contains("did you mean 'gateway'?") && said.contains("(line 6)"), "{said}");
        assert!(warnings("runtime", "addon: []\n").contains("did you mean 'addons'?"));
        let cpi = warnings("cpi", "cpis:\n- {name: a, type: local, exec_pth: /x}\n");
        assert!(cpi.contains("did you mean 'exec_path'?"), "{cpi}");
        assert_eq!(warnings("cloud", "azs: [{name: z1}]\n"), "");
        assert_eq!(warnings("resurrection", "rules: []\n"), "");
    }
}

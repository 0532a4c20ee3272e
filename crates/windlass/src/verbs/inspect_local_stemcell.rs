//! `windlass inspect-local-stemcell`: what a stemcell says of itself. `stemcell inspect` tells more.

use std::path::Path;

use serde_json::Value;
use windlass_contract::stemcell::StemcellManifest;

use crate::failure::Failure;
use crate::screen::Screen;
use crate::table::Table;
use crate::verbs::upload_stemcell::progress_bar;

pub(super) fn run(screen: &mut Screen, file: &Path) -> Result<(), Failure> {
    let bar = progress_bar(screen.is_live());
    let inspection = windlass_stemcell::inspect(file, bar.reporter());
    bar.clear();
    screen.table(&table(&inspection?.manifest));
    Ok(())
}

fn table(manifest: &StemcellManifest) -> Table {
    let property = |name: &str| match manifest.cloud_properties.get(name) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(other) => Some(other.to_string()),
    };
    Table {
        content: "stemcell-metadata",
        header: vec!["Name", "OS", "Version", "Infrastructure", "Hypervisor"],
        rows: vec![vec![
            manifest.name.clone(),
            manifest.os().to_owned(),
            manifest.version.clone(),
            property("infrastructure").unwrap_or_else(|| "unknown".to_owned()),
            property("hypervisor").unwrap_or_else(|| "-".to_owned()),
        ]],
        ..Table::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_stemcell_is_shown_as_by_the_original() {
        let shown = |properties: Value| {
            let manifest = json!({"name": "s", "operating_system": "ubuntu-jammy", "version": "1.2", "cloud_properties": properties});
            table(&serde_json::from_value(manifest).unwrap())
        };
        let for_scripts = |properties| shown(properties).for_scripts();
        assert_eq!(
            for_scripts(json!({"infrastructure": "aws", "hypervisor": "xen"})),
            "s\tubuntu-jammy\t1.2\taws\txen\t\n"
        );
        assert_eq!(for_scripts(json!({})), "s\tubuntu-jammy\t1.2\tunknown\t-\t\n");
        assert_eq!(shown(json!({})).to_json()["Rows"][0]["hypervisor"], "-");
    }
}

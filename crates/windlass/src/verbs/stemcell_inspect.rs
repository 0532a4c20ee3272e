//! `windlass stemcell inspect`: what is inside a stemcell.

use std::path::Path;

use windlass_stemcell::{DigestCheck, Inspection};

use crate::failure::Failure;
use crate::formats;
use crate::screen::Screen;
use crate::table::Table;

pub(crate) fn run(screen: &mut Screen, file: &Path) -> Result<(), Failure> {
    screen.table(&table(&windlass_stemcell::inspect(file)?));
    Ok(())
}

fn table(stemcell: &Inspection) -> Table {
    let manifest = &stemcell.manifest;
    let version = manifest.api_version.unwrap_or_default();
    let digest = match &stemcell.digest {
        DigestCheck::Matches => "matches the manifest".to_owned(),
        DigestCheck::Differs { expected, actual } => format!("differs: {actual}, but the manifest says {expected}"),
        DigestCheck::Unknown => "not given".to_owned(),
    };
    let needs = if version.has_v2_results() { "no registry" } else { "a registry" };
    Table {
        header: vec!["Name", "Version", "OS", "API Version", "Formats", "Size", "Image Size", "Image Digest"],
        rows: vec![vec![
            manifest.name.clone(),
            manifest.version.clone(),
            manifest.os().to_owned(),
            format!("{version} (needs {needs})"),
            manifest.stemcell_formats.join("\n"),
            formats::size(stemcell.size),
            formats::size(stemcell.image_size),
            digest,
        ]],
        transpose: true,
        ..Table::default()
    }
}

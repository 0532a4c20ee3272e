//! `windlass stemcell inspect`: what is inside a stemcell.

use std::path::Path;

use windlass_manifest::to_yaml;
use windlass_stemcell::{DigestCheck, Inspection};

use crate::failure::Failure;
use crate::formats;
use crate::screen::Screen;
use crate::table::Table;
use crate::verbs::upload_stemcell::progress_bar;

pub(crate) fn run(screen: &mut Screen, file: &Path) -> Result<(), Failure> {
    let bar = progress_bar(screen.is_live());
    let inspection = windlass_stemcell::inspect(file, bar.reporter());
    bar.clear();
    screen.table(&table(&inspection?));
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
    let image_size = match stemcell.image_size {
        0 => "light: the cloud has the image".to_owned(),
        size => formats::size(size),
    };
    let properties = serde_json::Value::from(manifest.cloud_properties.clone());
    let properties = if manifest.cloud_properties.is_empty() { String::new() } else { to_yaml(&properties) };
    Table {
        header: vec![
            "Name",
            "Version",
            "OS",
            "API Version",
            "Formats",
            "Size",
            "Image Size",
            "Image Digest",
            "Cloud Properties",
        ],
        rows: vec![vec![
            manifest.name.clone(),
            manifest.version.clone(),
            manifest.os().to_owned(),
            format!("{version} (needs {needs})"),
            manifest.stemcell_formats.join("\n"),
            formats::size(stemcell.size),
            image_size,
            digest,
            properties.trim_end().to_owned(),
        ]],
        transpose: true,
        ..Table::default()
    }
}

//! `windlass stemcell repack`: a stemcell that says something else of itself, or has another agent.

use windlass_contract::{ApiVersion, Object};
use windlass_manifest::Document;
use windlass_stemcell::RepackOptions;

use crate::cli::StemcellRepackArgs;
use crate::failure::Failure;
use crate::screen::Screen;
use crate::verbs::upload_stemcell::progress_bar;

pub(crate) fn run(screen: &mut Screen, arguments: StemcellRepackArgs) -> Result<(), Failure> {
    let options = RepackOptions {
        input: arguments.file,
        output: arguments.output,
        name: arguments.name,
        version: arguments.stemcell_version,
        os: arguments.os,
        api_version: arguments.api_version.map(ApiVersion),
        cloud_properties: arguments.cloud_properties.as_deref().map(properties).transpose()?.unwrap_or_default(),
        formats: Some(arguments.formats).filter(|formats| !formats.is_empty()),
        agent: arguments.agent,
        empty_image: arguments.empty_image,
    };
    let bar = progress_bar(screen.is_live());
    let repacked = windlass_stemcell::repack(&options, bar.reporter());
    bar.clear();
    repacked?;
    screen.line(&format!("The stemcell is in {}", options.output.display()));
    Ok(())
}

fn properties(text: &str) -> Result<Object, Failure> {
    let invalid =
        |source: Box<dyn std::error::Error + Send + Sync>| Failure::Yaml { path: "--cloud-properties".into(), source };
    let document = Document::parse(text).map_err(|error| invalid(error.into()))?;
    document.root().object().map_err(|error| invalid(error.into()))
}

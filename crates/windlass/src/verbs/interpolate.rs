//! `windlass interpolate`: a document after operations and with values for its variables. Needs no director.

use windlass_manifest::interpolate::Strictness;

use crate::cli::InterpolateArgs;
use crate::failure::Failure;
use crate::interpolation::{Interpolation, printed};
use crate::screen::Screen;
use crate::verbs::read_document;

pub(crate) fn run(screen: &mut Screen, arguments: &InterpolateArgs) -> Result<(), Failure> {
    let text = read_document(&arguments.manifest)?;
    let strictness = Strictness { missing: arguments.var_errs, unused: arguments.var_errs_unused };
    let document = Interpolation::read(&arguments.changes)?.apply(&text, strictness)?;
    screen.block(&printed(&document, arguments.path.as_ref())?);
    Ok(())
}

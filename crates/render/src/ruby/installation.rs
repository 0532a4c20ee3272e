//! The Ruby of this machine: its interpreter, its libraries, and the shared libraries that they need.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use elf::ElfBytes;
use elf::abi::PT_INTERP;
use elf::endian::AnyEndian;
use serde::{Deserialize, Serialize};

use super::{LIBRARIES, RubyError};

/// Says where everything is, once all that templates may use is loaded.
const PROBE: &str = "maps = File.readlines('/proc/self/maps').filter_map { |line| line[%r{/.*$}] }
    puts JSON.generate('version' => RUBY_VERSION, 'folders' => $LOAD_PATH, 'mapped' => maps.uniq)";

/// The files of a Ruby: nothing else is in its cage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Installation {
    pub(super) version: String,
    /// The interpreter; no link.
    pub(super) program: PathBuf,
    /// Its own libraries.
    pub(super) folders: Vec<PathBuf>,
    /// The interpreter, the loader and shared libraries.
    pub(super) files: BTreeSet<PathBuf>,
    /// Other names of these.
    pub(super) links: BTreeMap<PathBuf, PathBuf>,
}

#[derive(Deserialize)]
struct Probed {
    version: String,
    folders: Vec<PathBuf>,
    mapped: Vec<PathBuf>,
}

impl Installation {
    /// Asks this interpreter, or the `ruby` of the `PATH`.
    pub(super) fn find(interpreter: Option<&Path>) -> Result<Self, RubyError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let of_path = || std::env::split_paths(&path).map(|folder| folder.join("ruby")).find(|file| file.is_file());
        let program = interpreter
            .map(Path::to_owned)
            .or_else(of_path)
            .and_then(|program| program.canonicalize().ok())
            .ok_or(RubyError::NotFound)?;
        let unusable = |why: String| RubyError::Unusable { program: program.clone(), why };
        let asked = Command::new(&program)
            .args(super::FLAGS)
            .args(["-e", &format!("{LIBRARIES}\n{PROBE}")])
            .env_clear()
            .stdin(Stdio::null())
            .output()
            .map_err(|error| unusable(error.to_string()))?;
        let probed: Probed = serde_json::from_slice(&asked.stdout)
            .map_err(|_| unusable(String::from_utf8_lossy(&asked.stderr).trim().to_owned()))?;
        let mut files: BTreeSet<PathBuf> = probed.mapped.into_iter().filter(|file| is_shared(file)).collect();
        let mut links = other_names(&files);
        if let Some(loader) = loader(&program) {
            let real = loader.canonicalize().map_err(|error| unusable(error.to_string()))?;
            if real != loader {
                links.insert(loader, real.clone());
            }
            files.insert(real);
        }
        files.insert(program.clone());
        let folders: Vec<_> = probed.folders.into_iter().filter(|folder| folder.is_dir()).collect();
        // Those inside of others are there anyway.
        let is_inside = |path: &Path| folders.iter().any(|folder| path != folder && path.starts_with(folder));
        files.retain(|file| !is_inside(file));
        links.retain(|link, _| !is_inside(link));
        let folders = folders.iter().filter(|folder| !is_inside(folder)).cloned().collect();
        Ok(Self { version: probed.version, program, folders, files, links })
    }
}

fn is_shared(file: &Path) -> bool {
    file.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.contains(".so"))
}

/// The links beside shared libraries, by which programs ask for them.
fn other_names(files: &BTreeSet<PathBuf>) -> BTreeMap<PathBuf, PathBuf> {
    let folders: BTreeSet<&Path> = files.iter().filter_map(|file| file.parent()).collect();
    let mut links = BTreeMap::new();
    for entry in folders.into_iter().flat_map(fs::read_dir).flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_symlink())
            && let Ok(real) = path.canonicalize()
            && files.contains(&real)
        {
            links.insert(path, real);
        }
    }
    links
}

/// What the kernel starts first: the interpreter names it.
fn loader(program: &Path) -> Option<PathBuf> {
    let bytes = fs::read(program).ok()?;
    let file = ElfBytes::<AnyEndian>::minimal_parse(&bytes).ok()?;
    let segment = file.segments()?.iter().find(|segment| segment.p_type == PT_INTERP)?;
    let name = file.segment_data(&segment).ok()?;
    Some(PathBuf::from(std::str::from_utf8(name).ok()?.trim_end_matches('\0')))
}

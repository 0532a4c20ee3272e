//! Which shared libraries a program needs, and where they are on this machine.
//!
//! Read from the program itself, never by running it. The loader's cache is not asked: an image that we build has none, so a library
//! is only of use where the loader looks by itself.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use elf::ElfStream;
use elf::abi;
use elf::endian::AnyEndian;

/// Where loaders look, after their own folder.
const FOLDERS: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];
/// Names of libraries are short, however large the file claims its tables to be.
const LARGEST_TABLE: u64 = 64 * 1024 * 1024;

/// What a program needs to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The loader, as the program names it.
    pub(crate) loader: PathBuf,
    /// The libraries by name, those of libraries included.
    pub(crate) libraries: BTreeMap<String, Library>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Library {
    /// On this machine.
    pub(crate) source: PathBuf,
    /// In an image where the program is at another place.
    pub(crate) target: PathBuf,
}

/// a program whose needs cannot be met
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// it cannot be read
    #[error("'{}' cannot be read", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("'{}' is a damaged program", path.display())]
    Damaged {
        path: PathBuf,
        #[source]
        source: elf::ParseError,
    },
    /// a library is not there
    #[error(
        "'{}' needs the library '{name}', which is not where its loader looks by itself; use a static agent",
        path.display()
    )]
    NoLibrary { path: PathBuf, name: String },
}

/// What the program at `path` needs if it is moved to the folder `moved_to` of an image; none if it runs by itself, as static
/// programs and scripts do.
pub(crate) fn needs(path: &Path, moved_to: &Path) -> Result<Option<Needs>, ProgramError> {
    let program = Object::read(path)?;
    let Some(loader) = program.loader.clone() else { return Ok(None) };
    let loader_name = loader.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let unreadable = |source| ProgramError::Unreadable { path: loader.clone(), source };
    let real_loader = std::fs::canonicalize(&loader).map_err(unreadable)?;
    let folders: Vec<PathBuf> =
        real_loader.parent().into_iter().map(PathBuf::from).chain(FOLDERS.map(PathBuf::from)).collect();
    let mut libraries = BTreeMap::new();
    let mut waiting = vec![(path.to_owned(), moved_to.to_owned(), program)];
    while let Some((file, image_folder, object)) = waiting.pop() {
        let folder = file.parent().unwrap_or(Path::new("/"));
        for name in &object.needed {
            // The loader is itself a library of the C library, and there already.
            if *name == loader_name || libraries.contains_key(name) {
                continue;
            }
            let own = object.folders.iter().map(|own| (expand(own, folder), expand(own, &image_folder)));
            let usual = folders.iter().map(|folder| (folder.clone(), folder.clone()));
            let found = own.chain(usual).find_map(|(source, target)| {
                let source = source.join(name);
                let found = Object::read(&source).ok().filter(|found| found.machine == object.machine)?;
                Some((source, target, found))
            });
            let Some((source, target, found)) = found else {
                return Err(ProgramError::NoLibrary { path: path.to_owned(), name: name.clone() });
            };
            libraries.insert(name.clone(), Library { source: source.clone(), target: target.join(name) });
            waiting.push((source, target, found));
        }
    }
    Ok(Some(Needs { loader, libraries }))
}

/// Whether a program is our agent, which needs nobody to run jobs. Its name and version are in it.
pub(crate) fn is_our_agent(path: &Path) -> io::Result<bool> {
    const NAME: &[u8] = b"windlass-agent ";
    let mut reader = BufReader::with_capacity(1 << 20, File::open(path)?);
    // The end of what was read, because the name may lie over a border.
    let mut kept: Vec<u8> = Vec::new();
    loop {
        let part = reader.fill_buf()?;
        if part.is_empty() {
            return Ok(false);
        }
        kept.extend_from_slice(part);
        let read = part.len();
        reader.consume(read);
        if kept.windows(NAME.len()).any(|found| found == NAME) {
            return Ok(true);
        }
        kept.drain(..kept.len().saturating_sub(NAME.len() - 1));
    }
}

/// Whether the file at `path` is a program that needs no libraries.
pub(crate) fn is_static(path: &Path) -> bool {
    Object::read(path)
        .is_ok_and(|object| object.machine.is_some() && object.loader.is_none() && object.needed.is_empty())
}

fn expand(folder: &str, origin: &Path) -> PathBuf {
    let origin = origin.to_string_lossy();
    PathBuf::from(folder.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin))
}

/// What the loader reads of a program or library.
#[derive(Debug, Default)]
struct Object {
    loader: Option<PathBuf>,
    needed: Vec<String>,
    /// Where it wants its libraries looked for.
    folders: Vec<String>,
    machine: Option<(elf::file::Class, u16)>,
}

impl Object {
    /// A file that is no program in this sense, such as a script, needs nothing.
    fn read(path: &Path) -> Result<Self, ProgramError> {
        let unreadable = |source| ProgramError::Unreadable { path: path.to_owned(), source };
        let damaged = |source| ProgramError::Damaged { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(unreadable)?;
        let mut magic = Vec::new();
        (&mut file).take(4).read_to_end(&mut magic).map_err(unreadable)?;
        if magic != abi::ELFMAGIC {
            return Ok(Self::default());
        }
        let mut elf = ElfStream::<AnyEndian, _>::open_stream(&mut file).map_err(damaged)?;
        let segments = elf.segments().clone();
        let machine = Some((elf.ehdr.class, elf.ehdr.e_machine));
        let mut tags = Vec::new();
        if let Some(dynamic) = elf.dynamic().map_err(damaged)? {
            tags.extend(dynamic.iter().map(|tag| (tag.d_tag, tag.d_val())));
        }
        drop(elf);
        let mut bytes = |at: u64, size: u64| {
            let mut bytes = Vec::new();
            file.seek(SeekFrom::Start(at))?;
            (&mut file).take(size.min(LARGEST_TABLE)).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let mut loader = None;
        if let Some(segment) = segments.iter().find(|segment| segment.p_type == abi::PT_INTERP) {
            let name = bytes(segment.p_offset, segment.p_filesz).map_err(unreadable)?;
            loader = Some(PathBuf::from(text(&name)));
        }
        let value = |wanted| tags.iter().find(|(tag, _)| *tag == wanted).map(|(_, value)| *value);
        let mut names = Vec::new();
        if let (Some(address), Some(size)) = (value(abi::DT_STRTAB), value(abi::DT_STRSZ)) {
            let holds = |segment: &&elf::segment::ProgramHeader| {
                segment.p_type == abi::PT_LOAD
                    && address >= segment.p_vaddr
                    && address - segment.p_vaddr < segment.p_filesz
            };
            if let Some(segment) = segments.iter().find(holds) {
                let at = segment.p_offset.saturating_add(address - segment.p_vaddr);
                names = bytes(at, size).map_err(unreadable)?;
            }
        }
        let name = |at: u64| usize::try_from(at).ok().and_then(|at| names.get(at..)).map(text).unwrap_or_default();
        let all = |wanted: &[i64]| -> Vec<String> {
            tags.iter().filter(|(tag, _)| wanted.contains(tag)).map(|(_, at)| name(*at)).collect()
        };
        let folders = all(&[abi::DT_RPATH, abi::DT_RUNPATH]);
        let folders = folders.iter().flat_map(|list| list.split(':')).filter(|folder| !folder.is_empty());
        Ok(Self { loader, needed: all(&[abi::DT_NEEDED]), folders: folders.map(str::to_owned).collect(), machine })
    }
}

/// Up to the first zero.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_names_its_loader_and_every_library_down_to_the_last() {
        // The test itself is such a program, and runs.
        let own = std::env::current_exe().unwrap();
        let Some(needs) = needs(&own, Path::new("/moved")).unwrap() else { return };
        assert!(needs.loader.is_absolute() && needs.loader.exists());
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let loaded = |name: &str| maps.lines().any(|line| line.ends_with(&format!("/{name}")));
        assert!(!needs.libraries.is_empty());
        for (name, library) in &needs.libraries {
            assert!(loaded(name), "{name} is not loaded here");
            assert!(library.source.is_file());
        }
    }

    #[test]
    fn a_script_needs_nothing_and_half_a_program_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent");
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        assert_eq!(needs(&path, Path::new("/")).unwrap(), None);
        std::fs::write(&path, b"\x7fELF\x02\x01\x01").unwrap();
        assert!(matches!(needs(&path, Path::new("/")), Err(ProgramError::Damaged { .. })));
        assert!(matches!(needs(&folder.path().join("none"), Path::new("/")), Err(ProgramError::Unreadable { .. })));
    }

    #[test]
    fn libraries_beside_the_program_move_with_it() {
        assert_eq!(expand("$ORIGIN/../lib", Path::new("/var/vcap/bosh/bin")), Path::new("/var/vcap/bosh/bin/../lib"));
        assert_eq!(expand("/opt/lib", Path::new("/x")), Path::new("/opt/lib"));
    }
}

//! What is inside the archive of a job, package or licence, and how it is written. The same files give the same archive, so making
//! one again changes no digest.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

use crate::error::AuthorError;
use crate::fingerprint::{Content, Links, Source, hex, mode_of_folder};

/// 1980: `tar` complains about older files, and times of files say nothing in a release.
const TIME: u64 = 315_532_800;

/// What is in an archive, by its path there.
#[derive(Debug, Default)]
pub(crate) struct Tree(BTreeMap<PathBuf, Entry>);

#[derive(Debug)]
enum Entry {
    Folder { mode: u32 },
    File { from: PathBuf, mode: u32, digest: Option<String> },
    Link { target: PathBuf },
}

impl Tree {
    /// What files become.
    pub(crate) fn of(contents: &[(Source, Content)], links: Links) -> Result<Self, AuthorError> {
        let mut tree = Self::default();
        for (source, content) in contents {
            let parents: Vec<&Path> = source.name.ancestors().skip(1).collect();
            for parent in parents.iter().rev() {
                tree.0.entry(parent.to_path_buf()).or_insert(Entry::Folder { mode: 0o755 });
            }
            if let Some(parent) = parents.first() {
                tree.0.insert(parent.to_path_buf(), Entry::Folder { mode: mode_of_folder(&source.path, links)? });
            }
            let entry = match content {
                Content::Link(target) => Entry::Link { target: target.clone() },
                Content::File { executable, digest } => Entry::File {
                    from: source.path.clone(),
                    mode: if *executable { 0o755 } else { 0o644 },
                    digest: Some(digest.clone()),
                },
            };
            tree.0.insert(source.name.clone(), entry);
        }
        Ok(tree)
    }

    fn read(folder: &Path) -> Result<Self, AuthorError> {
        let mut tree = Self::default();
        let mut folders = vec![PathBuf::new()];
        while let Some(name) = folders.pop() {
            let path = folder.join(&name);
            let failed = |error| AuthorError::Read(path.clone(), error);
            let mode = fs::metadata(&path).map_err(failed)?.permissions().mode() & 0o7777;
            tree.0.insert(name.clone(), Entry::Folder { mode });
            for entry in fs::read_dir(&path).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let (name, kind) = (name.join(entry.file_name()), entry.file_type().map_err(failed)?);
                if kind.is_dir() {
                    folders.push(name);
                } else if kind.is_symlink() {
                    let target = fs::read_link(entry.path()).map_err(failed)?;
                    tree.0.insert(name, Entry::Link { target });
                } else if kind.is_file() {
                    let mode = entry.metadata().map_err(failed)?.permissions().mode() & 0o7777;
                    tree.0.insert(name, Entry::File { from: entry.path(), mode, digest: None });
                } else {
                    return Err(AuthorError::Kind { path: entry.path(), kind: "a device, socket or pipe" });
                }
            }
        }
        Ok(tree)
    }

    /// Writes the archive; the digest of what was written.
    pub(crate) fn pack(&self, into: &Path, compress: bool) -> Result<String, AuthorError> {
        let cannot_write = |error| AuthorError::Write(into.to_owned(), error);
        let file =
            Hashed { inner: io::BufWriter::new(File::create_new(into).map_err(cannot_write)?), hasher: Sha256::new() };
        let file = if compress {
            let mut encoder = GzEncoder::new(file, Compression::default());
            self.write(&mut encoder, into)?;
            encoder.finish().map_err(cannot_write)?
        } else {
            let mut file = file;
            self.write(&mut file, into)?;
            file
        };
        let written = file.inner.into_inner().map_err(|error| cannot_write(error.into_error()))?;
        written.sync_all().map_err(cannot_write)?;
        Ok(format!("sha256:{}", hex(&file.hasher.finalize())))
    }

    fn write(&self, to: &mut impl Write, into: &Path) -> Result<(), AuthorError> {
        let cannot_write = |error| AuthorError::Write(into.to_owned(), error);
        for (name, entry) in &self.0 {
            let mut path = b"./".to_vec();
            path.extend(name.as_os_str().as_bytes());
            match entry {
                Entry::Folder { mode } => {
                    if path.len() > 2 {
                        path.push(b'/');
                    }
                    header(to, &path, tar::EntryType::Directory, *mode, 0, &[]).map_err(cannot_write)?;
                }
                Entry::Link { target } => {
                    let target = target.as_os_str().as_bytes();
                    header(to, &path, tar::EntryType::Symlink, 0o777, 0, target).map_err(cannot_write)?;
                }
                Entry::File { from, mode, digest } => {
                    let file = File::open(from).and_then(|file| Ok((file.metadata()?.len(), file)));
                    let (size, file) = file.map_err(|error| AuthorError::Read(from.clone(), error))?;
                    header(to, &path, tar::EntryType::Regular, *mode, size, &[]).map_err(cannot_write)?;
                    copy(file, from, size, digest.as_deref(), to, cannot_write)?;
                }
            }
        }
        to.write_all(&[0; 1024]).map_err(cannot_write)
    }

    /// Lays it out in a folder of its own, runs a script there, and takes what is there then.
    #[expect(clippy::disallowed_methods, reason = "a temporary folder of our own")]
    pub(crate) fn prepared(&self, script: &Path, release: &Path, folder: &Path) -> Result<Self, AuthorError> {
        for (name, entry) in &self.0 {
            let path = folder.join(name);
            let done = match entry {
                Entry::Folder { .. } => fs::create_dir_all(&path),
                Entry::File { from, mode, .. } => {
                    fs::copy(from, &path).and_then(|_| fs::set_permissions(&path, fs::Permissions::from_mode(*mode)))
                }
                Entry::Link { target } => std::os::unix::fs::symlink(target, &path),
            };
            done.map_err(|error| AuthorError::Write(path, error))?;
        }
        for (name, entry) in self.0.iter().rev() {
            if let Entry::Folder { mode } = entry {
                let path = folder.join(name);
                let done = fs::set_permissions(&path, fs::Permissions::from_mode(*mode | 0o700));
                done.map_err(|error| AuthorError::Write(path, error))?;
            }
        }
        let failed = |said: String| AuthorError::PrePackaging { script: script.to_owned(), said };
        let output = Command::new("bash")
            .arg("-x")
            .arg(script)
            .current_dir(folder)
            .env("BUILD_DIR", folder)
            .env("RELEASE_DIR", release)
            .stdin(std::process::Stdio::null())
            .output()
            .map_err(|error| failed(format!("bash cannot be started: {error}")))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let last: Vec<&str> = said.trim().lines().rev().take(5).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            return Err(failed(format!("{}\n{}", output.status, last.join("\n"))));
        }
        let copy = folder.join(script.file_name().unwrap_or(OsStr::new("pre_packaging")));
        match fs::remove_file(&copy) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(AuthorError::Write(copy, error)),
            _ => Self::read(folder),
        }
    }
}

/// Copies a file as it was when its fingerprint was taken.
fn copy(
    mut file: File,
    path: &Path,
    size: u64,
    digest: Option<&str>,
    to: &mut impl Write,
    cannot_write: impl Fn(io::Error) -> AuthorError,
) -> Result<(), AuthorError> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut left = size;
    loop {
        let count = file.read(&mut buffer).map_err(|error| AuthorError::Read(path.to_owned(), error))?;
        if count == 0 {
            break;
        }
        left = left.checked_sub(count as u64).ok_or_else(|| AuthorError::Changed(path.to_owned()))?;
        hasher.update(&buffer[..count]);
        to.write_all(&buffer[..count]).map_err(&cannot_write)?;
    }
    let is_other = digest.is_some_and(|digest| digest != format!("sha256:{}", hex(&hasher.finalize())));
    if left > 0 || is_other {
        return Err(AuthorError::Changed(path.to_owned()));
    }
    let padding = (512 - size % 512) % 512;
    to.write_all(&vec![0; usize::try_from(padding).unwrap_or(0)]).map_err(cannot_write)
}

/// A tar header, with the `./` in front that `tar::Builder` would take away.
fn header(to: &mut impl Write, name: &[u8], kind: tar::EntryType, mode: u32, size: u64, link: &[u8]) -> io::Result<()> {
    for (long, kind) in [(name, tar::EntryType::GNULongName), (link, tar::EntryType::GNULongLink)] {
        if long.len() > 100 {
            let mut text = long.to_vec();
            text.push(0);
            header(to, b"././@LongLink", kind, 0o644, text.len() as u64, &[])?;
            text.resize(text.len().next_multiple_of(512), 0);
            to.write_all(&text)?;
        }
    }
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(TIME);
    header.set_uid(0);
    header.set_gid(0);
    if let Some(gnu) = header.as_gnu_mut() {
        for (field, text) in [(&mut gnu.name, name), (&mut gnu.linkname, link)] {
            let length = text.len().min(field.len());
            field[..length].copy_from_slice(&text[..length]);
        }
    }
    header.set_cksum();
    to.write_all(header.as_bytes())
}

/// A file whose digest is known when it is written.
struct Hashed<W> {
    inner: W,
    hasher: Sha256,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

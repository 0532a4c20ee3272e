//! Writing: an image, and the stemcell around it. The same input gives the same bytes, for every user and at any time.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use sha1::{Digest, Sha1};
use tar::{EntryType, Header};
use windlass_durable::{file, kill_point};

use crate::digest::hex;
use crate::meter::Meter;
use crate::root_fs::{Content, Entry};
use crate::tarball::TarEntry;

/// Why an entry could not be put into an archive.
#[derive(Debug)]
pub(crate) enum PutError {
    /// Its content could not be read.
    Read(io::Error),
    /// The archive could not be written.
    Write(io::Error),
}

/// A tar that is being written.
pub(crate) struct Pack<W: Write> {
    tar: tar::Builder<W>,
}

impl<W: Write> Pack<W> {
    pub(crate) fn new(target: W) -> Self {
        Self { tar: tar::Builder::new(target) }
    }

    pub(crate) fn into_inner(self) -> io::Result<W> {
        self.tar.into_inner()
    }

    /// Puts one of our own entries.
    pub(crate) fn put(&mut self, entry: &Entry, meter: &Meter<'_>) -> Result<(), PutError> {
        let path = Path::new(&entry.path);
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(entry.mode);
        header.set_uid(entry.user.into());
        header.set_gid(entry.group.into());
        header.set_mtime(0);
        match &entry.content {
            Content::Folder => {
                header.set_entry_type(EntryType::Directory);
                self.file(&mut header, path, 0, io::empty())
            }
            Content::Text(text) => self.file(&mut header, path, text.len() as u64, text.as_bytes()),
            Content::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                self.link(&mut header, path, target.as_bytes())
            }
            Content::File(source) => {
                let file = File::open(source).map_err(PutError::Read)?;
                let size = file.metadata().map_err(PutError::Read)?.len();
                self.file(&mut header, path, size, meter.read(file))
            }
        }
    }

    /// Copies an entry of another archive to `path`, with its times and owners as `change` makes them.
    pub(crate) fn copy<R: Read>(
        &mut self,
        entry: &mut TarEntry<'_, R>,
        path: &Path,
        change: impl Fn(&mut Header),
    ) -> Result<(), PutError> {
        let mut attributes = Vec::new();
        if let Some(extensions) = entry.pax_extensions().map_err(PutError::Read)? {
            for extension in extensions {
                let extension = extension.map_err(PutError::Read)?;
                match extension.key() {
                    Ok(key) if key.starts_with(ATTRIBUTE) => {
                        attributes.push((key.to_owned(), extension.value_bytes().to_vec()));
                    }
                    Ok(key) if key.starts_with("GNU.sparse.") => {
                        let advice = "it has sparse files in tar's posix form; pack it again without --sparse";
                        return Err(PutError::Read(io::Error::other(advice)));
                    }
                    // The others are in the header already.
                    _ => {}
                }
            }
        }
        let attributes = attributes.iter().map(|(key, value)| (key.as_str(), value.as_slice()));
        self.tar.append_pax_extensions(attributes).map_err(PutError::Write)?;
        let mut header = plain_header(entry.header()).map_err(PutError::Read)?;
        change(&mut header);
        match entry.link_name_bytes() {
            Some(target) if header.entry_type().is_symlink() || header.entry_type().is_hard_link() => {
                self.link(&mut header, path, &target)
            }
            _ => {
                let size = entry.size();
                self.file(&mut header, path, size, entry).map_err(|error| match error {
                    PutError::Read(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        PutError::Read(io::Error::new(error.kind(), format!("it ends inside '{}'", path.display())))
                    }
                    other => other,
                })
            }
        }
    }

    /// Puts other content in the place of an entry of another archive.
    pub(crate) fn replace<R: Read>(
        &mut self,
        entry: &TarEntry<'_, R>,
        path: &Path,
        size: u64,
        content: impl Read,
    ) -> Result<(), PutError> {
        let mut header = plain_header(entry.header()).map_err(PutError::Read)?;
        self.file(&mut header, path, size, content)
    }

    /// Puts a file with `size` bytes of `content`, or something without any.
    pub(crate) fn file(
        &mut self,
        header: &mut Header,
        path: &Path,
        size: u64,
        content: impl Read,
    ) -> Result<(), PutError> {
        header.set_size(size);
        let mut content = Remembering { reader: content.take(size), read: 0, failure: None };
        let written = self.tar.append_data(header, path, &mut content);
        // A file that shrank makes a broken archive.
        if content.failure.is_none() && written.is_ok() && content.read != size {
            content.failure = Some(io::Error::new(io::ErrorKind::UnexpectedEof, "it changed while it was read"));
        }
        content.failure.map_or(Ok(()), |failure| Err(PutError::Read(failure)))?;
        written.map_err(PutError::Write)
    }

    /// Puts a link, its target as it is: a path that somebody tidied up would be another one.
    pub(crate) fn link(&mut self, header: &mut Header, path: &Path, target: &[u8]) -> Result<(), PutError> {
        header.set_size(0);
        if header.set_link_name_literal(target).is_ok() {
            return self.file(header, path, 0, io::empty());
        }
        let target = Path::new(std::ffi::OsStr::from_bytes(target));
        self.tar.append_link(header, path, target).map_err(PutError::Write)
    }

    /// Extended attributes of the entry that comes next.
    pub(crate) fn attributes(&mut self, attributes: &[(String, Vec<u8>)]) -> Result<(), PutError> {
        let keys: Vec<(String, &[u8])> =
            attributes.iter().map(|(name, value)| (format!("{ATTRIBUTE}{name}"), value.as_slice())).collect();
        let keys = keys.iter().map(|(key, value)| (key.as_str(), *value));
        self.tar.append_pax_extensions(keys).map_err(PutError::Write)
    }
}

/// How tar names extended attributes, such as the capabilities of a program.
const ATTRIBUTE: &str = "SCHILY.xattr.";

/// A header with what one means, without what depends on the program that wrote it.
fn plain_header(from: &Header) -> io::Result<Header> {
    let mut header = Header::new_gnu();
    let kind = from.entry_type();
    let is_file = kind.is_file() || kind.is_gnu_sparse() || kind.is_contiguous();
    header.set_entry_type(if is_file { EntryType::Regular } else { kind });
    header.set_mode(from.mode()?);
    // Some writers leave blank what is zero.
    header.set_uid(from.uid().unwrap_or_default());
    header.set_gid(from.gid().unwrap_or_default());
    header.set_mtime(from.mtime().unwrap_or_default());
    if let Ok(Some(name)) = from.username() {
        header.set_username(name)?;
    }
    if let Ok(Some(name)) = from.groupname() {
        header.set_groupname(name)?;
    }
    if kind.is_character_special() || kind.is_block_special() {
        header.set_device_major(from.device_major()?.unwrap_or_default())?;
        header.set_device_minor(from.device_minor()?.unwrap_or_default())?;
    }
    Ok(header)
}

/// A reader that keeps its failure, so that it is told apart from the writer's.
struct Remembering<R> {
    reader: R,
    read: u64,
    failure: Option<io::Error>,
}

impl<R: Read> Read for Remembering<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.reader.read(buffer) {
            Ok(read) => {
                self.read += read as u64;
                Ok(read)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let kind = error.kind();
                self.failure = Some(error);
                Err(kind.into())
            }
        }
    }
}

/// The image of a stemcell on its way into a file without a name.
pub(crate) type ImagePack = Pack<GzEncoder<Digesting>>;

/// Begins an image beside `output`.
pub(crate) fn begin_image(output: &Path) -> io::Result<ImagePack> {
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = BufWriter::with_capacity(64 * 1024, tempfile::tempfile_in(folder)?);
    // Fast, because an agent of tens of megabytes is packed again with each build of it.
    Ok(Pack::new(GzEncoder::new(Digesting { file, digest: Sha1::new() }, Compression::fast())))
}

/// The image at its start, and its digest.
pub(crate) fn end_image(image: ImagePack) -> io::Result<(File, String)> {
    let Digesting { file, digest } = image.into_inner()?.finish()?;
    let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.rewind()?;
    Ok((file, hex(&digest.finalize())))
}

/// A writer that keeps the digest of what it wrote.
pub(crate) struct Digesting {
    file: BufWriter<File>,
    digest: Sha1,
}

impl Write for Digesting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.digest.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A stemcell that is being written beside its place, and removed unless it gets there.
pub(crate) struct NewStemcell {
    pack: Pack<GzEncoder<BufWriter<File>>>,
    temporary: Temporary,
}

impl NewStemcell {
    pub(crate) fn create(output: &Path) -> io::Result<Self> {
        let temporary = Temporary(file::beside(output)?);
        kill_point("before the stemcell is written");
        let target = BufWriter::with_capacity(64 * 1024, File::create_new(&temporary.0)?);
        // Stored as it is: the image is compressed already.
        Ok(Self { pack: Pack::new(GzEncoder::new(target, Compression::none())), temporary })
    }

    pub(crate) fn pack(&mut self) -> &mut Pack<GzEncoder<BufWriter<File>>> {
        &mut self.pack
    }

    /// Puts a file of the stemcell itself.
    pub(crate) fn put(&mut self, name: &str, size: u64, content: impl Read) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        self.pack.file(&mut header, Path::new(name), size, content).map_err(|error| match error {
            PutError::Read(error) | PutError::Write(error) => error,
        })
    }

    /// Puts the stemcell in its place.
    pub(crate) fn finish(self, output: &Path) -> io::Result<()> {
        let target = self.pack.into_inner()?.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        target.sync_all()?;
        file::rename(&self.temporary.0, output)
    }
}

/// A file that is removed unless it was renamed.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        file::discard(&self.0);
    }
}

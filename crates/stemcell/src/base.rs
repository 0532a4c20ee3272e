//! A root file system that becomes a stemcell: what of it is kept, what is replaced, what is added.
//!
//! It streams by once, from a tar ([`from_tar`]) or a folder ([`from_folder`]). What is ours is left out on the way, what we need to
//! know is remembered, and [`Seen::complete`] puts our files at the end.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use tar::{EntryType, Header};

use crate::accounts::{AccountTaken, Accounts};
use crate::companions::{PROGRAM_FOLDERS, Programs};
use crate::init::Init;
use crate::meter::Meter;
use crate::pack::{ImagePack, PutError};
use crate::root_fs::{AGENT, Content, LIBRARIES, Setup, System, additions};
use crate::tarball::{Tarball, inside};

/// The files with users and groups are small.
const LARGEST_ACCOUNTS: u64 = 4 * 1024 * 1024;

/// As many as Linux follows.
const MOST_LINKS: usize = 40;

/// a root file system that cannot become a stemcell
#[derive(Debug, thiserror::Error)]
pub enum RootFsError {
    /// it cannot be read
    #[error("it cannot be read")]
    Read(#[source] io::Error),
    /// a file of it cannot be read
    #[error("its '{}' cannot be read", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// it is something else, or damaged
    #[error("it is not a tar, or it is damaged")]
    Damaged(#[source] io::Error),
    /// it is compressed by something else
    #[error("it is compressed with {0}; decompress it first, or compress it with gzip")]
    Compressed(&'static str),
    /// there is nothing in it
    #[error("it is empty")]
    Empty,
    /// an entry that leads out of it
    #[error("its entry '{0}' leads out of it")]
    Outside(String),
    /// something else where a folder must be
    #[error("its '{}' must be a folder, because a stemcell needs files below it", .0.display())]
    NotFolder(PathBuf),
    /// a hard link to a file that is replaced
    #[error("its '{}' is a hard link to '{}', which is replaced; make it a file of its own", path.display(), target.display())]
    LinkToReplaced { path: PathBuf, target: PathBuf },
    /// its users are in the way
    #[error(transparent)]
    Accounts(#[from] AccountTaken),
    /// one of our own files cannot be read
    #[error("'{}' cannot be read", path.display())]
    Own {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// the image cannot be written
    #[error("the image cannot be written")]
    Write(#[source] io::Error),
}

/// What a root file system has, as far as it streamed by.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// For links, where they lead; for folders, nothing.
    nodes: BTreeMap<PathBuf, Node>,
    accounts: Accounts,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Folder,
    Link(PathBuf),
    Other,
}

/// What becomes of an entry.
#[derive(Debug, PartialEq, Eq)]
enum EntryTreatment {
    Kept,
    /// Left out: it is ours, or tells one machine from another.
    Dropped,
    /// Left out and read, because we add to it.
    Read(Account),
}

#[derive(Debug, PartialEq, Eq)]
enum Account {
    Passwd,
    Group,
    Shadow,
}

fn treatment(path: &Path, is_file: bool) -> EntryTreatment {
    let Some(path) = path.to_str() else { return EntryTreatment::Kept };
    match path {
        // The resolver of the machine where the system was made. A link leads to the program that manages it, and stays.
        "etc/resolv.conf" if is_file => EntryTreatment::Dropped,
        "etc/passwd" => EntryTreatment::Read(Account::Passwd),
        "etc/group" => EntryTreatment::Read(Account::Group),
        "etc/shadow" => EntryTreatment::Read(Account::Shadow),
        AGENT
        | "var/vcap/bosh/agent.json"
        | "var/vcap/bosh/etc/operating_system"
        | "var/vcap/bosh/etc/stemcell_version"
        | "var/vcap/bosh/etc/infrastructure"
        | "etc/systemd/system/bosh-agent.service"
        | "etc/systemd/system/multi-user.target.wants/bosh-agent.service"
        | "etc/sv/agent/run"
        | "etc/service/agent"
        // Machines made from one stemcell must have different ids and keys.
        | "etc/hostname"
        | "etc/machine-id"
        | "var/lib/dbus/machine-id"
        | "var/lib/systemd/random-seed" => EntryTreatment::Dropped,
        _ if path.starts_with("etc/ssh/ssh_host_") || path.starts_with(LIBRARIES) => EntryTreatment::Dropped,
        _ => EntryTreatment::Kept,
    }
}

impl Seen {
    fn remember(&mut self, account: &Account, group: u32, content: impl Read) -> io::Result<()> {
        let mut bytes = Vec::new();
        content.take(LARGEST_ACCOUNTS).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        match account {
            Account::Passwd => self.accounts.passwd = text,
            Account::Group => self.accounts.group = text,
            Account::Shadow => {
                self.accounts.shadow = text;
                self.accounts.shadow_group = group;
            }
        }
        Ok(())
    }

    fn programs(&self) -> Programs {
        let is_program =
            |path: &&PathBuf| PROGRAM_FOLDERS.iter().any(|folder| path.parent() == Some(Path::new(folder)));
        let name = |path: &PathBuf| Some(path.file_name()?.to_str()?.to_owned());
        self.nodes.keys().filter(is_program).filter_map(name).collect()
    }

    /// Puts our files on top.
    pub(crate) fn complete(self, setup: &Setup, image: &mut ImagePack, meter: &Meter<'_>) -> Result<(), RootFsError> {
        if self.nodes.is_empty() {
            return Err(RootFsError::Empty);
        }
        let init = Init::found(|path| {
            self.nodes.get(path).map(|node| if let Node::Link(target) = node { target.clone() } else { PathBuf::new() })
        });
        let has = |path: &str| self.nodes.contains_key(Path::new(path));
        let system = System { init, programs: self.programs(), has_monit: has("var/vcap/bosh/bin/monit") };
        let shell = if system.programs.contains("bash") { "/bin/bash" } else { "/bin/sh" };
        let mut accounts = self.accounts;
        if accounts.passwd.is_empty() {
            accounts = Accounts::minimal();
        }
        let accounts = accounts.with_vcap(shell)?;
        for mut entry in additions(setup, &accounts, &system) {
            let own = Path::new(entry.path.trim_end_matches('/'));
            let path = behind_links(&self.nodes, own)
                .ok_or_else(|| RootFsError::NotFolder(own.parent().unwrap_or(own).to_owned()))?;
            if path != own {
                entry.path = path.to_string_lossy().into_owned();
            }
            match (self.nodes.get(&path), &entry.content) {
                (Some(Node::Folder), Content::Folder) => continue,
                // `var/run`, `tmp` and the like may be links; what we put files below may not.
                (Some(_), Content::Folder) if path.starts_with("var/vcap") || path == Path::new("var") => {
                    return Err(RootFsError::NotFolder(path));
                }
                (Some(_), Content::Folder) => continue,
                (Some(_), _) if entry.yields => continue,
                _ => {}
            }
            image.put(&entry, meter).map_err(|error| match (error, &entry.content) {
                (PutError::Read(source), Content::File(path)) => RootFsError::Own { path: path.clone(), source },
                (PutError::Read(source) | PutError::Write(source), _) => RootFsError::Write(source),
            })?;
        }
        Ok(())
    }
}

/// Where `path` is when the links of its folders are followed, as in a VM; nowhere if they lead in a circle. Programs that unpack an
/// image may refuse to write through a link.
fn behind_links(nodes: &BTreeMap<PathBuf, Node>, path: &Path) -> Option<PathBuf> {
    let mut found = PathBuf::new();
    let mut ahead: Vec<Component<'_>> = path.components().rev().collect();
    let mut followed = 0;
    while let Some(part) = ahead.pop() {
        match part {
            Component::RootDir => found.clear(),
            Component::CurDir => {}
            Component::ParentDir => {
                found.pop();
            }
            part => found.push(part),
        }
        if let (Some(Node::Link(target)), false) = (nodes.get(&found), ahead.is_empty()) {
            followed += 1;
            if followed > MOST_LINKS {
                return None;
            }
            found.pop();
            ahead.extend(target.components().rev());
        }
    }
    Some(found)
}

/// Copies a root file system from a tar.
pub(crate) fn from_tar(reader: impl Read, image: &mut ImagePack) -> Result<Seen, RootFsError> {
    let mut seen = Seen::default();
    Tarball::new(reader).each(RootFsError::Damaged, |entry| {
        let outside = |name: &[u8]| RootFsError::Outside(String::from_utf8_lossy(name).into_owned());
        let name = entry.path_bytes().into_owned();
        let path = inside(&name).ok_or_else(|| outside(&name))?;
        let kind = entry.header().entry_type();
        // The root itself is the container's, and headers for the whole archive are no entries.
        if path.as_os_str().is_empty() || kind.is_pax_global_extensions() {
            return Ok(());
        }
        let target = entry.link_name_bytes().map(|target| target.into_owned()).unwrap_or_default();
        if kind.is_hard_link() {
            let target = inside(&target).ok_or_else(|| outside(&target))?;
            if treatment(&target, true) != EntryTreatment::Kept {
                return Err(RootFsError::LinkToReplaced { path, target });
            }
        }
        let node = if kind.is_dir() {
            Node::Folder
        } else if kind.is_symlink() {
            Node::Link(PathBuf::from(std::ffi::OsStr::from_bytes(&target)))
        } else {
            Node::Other
        };
        match treatment(&path, kind.is_file()) {
            EntryTreatment::Dropped => return Ok(()),
            EntryTreatment::Read(account) => {
                let group = entry.header().gid().ok().and_then(|group| u32::try_from(group).ok()).unwrap_or_default();
                return seen.remember(&account, group, entry).map_err(RootFsError::Damaged);
            }
            EntryTreatment::Kept => {}
        }
        let copied = image.copy(entry, &path, |header| {
            header.set_mtime(0);
            // Numbers say it all, and the names may be of another machine.
            let _ = header.set_username("").and(header.set_groupname(""));
        });
        copied.map_err(|error| match error {
            PutError::Read(source) => RootFsError::Damaged(source),
            PutError::Write(source) => RootFsError::Write(source),
        })?;
        seen.nodes.insert(path, node);
        Ok(())
    })?;
    Ok(seen)
}

/// The files of a folder, sorted, and how large they are together. Other file systems that are mounted in it are left out.
pub(crate) struct Listing {
    root: PathBuf,
    files: Vec<(PathBuf, Metadata)>,
    pub(crate) bytes: u64,
}

impl Listing {
    pub(crate) fn of(root: &Path) -> Result<Self, RootFsError> {
        let device = std::fs::metadata(root).map_err(RootFsError::Read)?.dev();
        let mut listing = Self { root: root.to_owned(), files: Vec::new(), bytes: 0 };
        listing.add(Path::new(""), device)?;
        Ok(listing)
    }

    fn add(&mut self, folder: &Path, device: u64) -> Result<(), RootFsError> {
        let unreadable = |source| RootFsError::File { path: folder.to_owned(), source };
        let entries = std::fs::read_dir(self.root.join(folder)).map_err(unreadable)?;
        let mut names = entries
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(unreadable)?;
        names.sort();
        for name in names {
            let path = folder.join(name);
            let metadata = std::fs::symlink_metadata(self.root.join(&path))
                .map_err(|source| RootFsError::File { path: path.clone(), source })?;
            let descends = metadata.is_dir() && metadata.dev() == device;
            if metadata.is_file() {
                self.bytes += metadata.len();
            }
            self.files.push((path.clone(), metadata));
            if descends {
                self.add(&path, device)?;
            }
        }
        Ok(())
    }
}

/// Copies a root file system from a folder.
pub(crate) fn from_folder(listing: &Listing, image: &mut ImagePack, meter: &Meter<'_>) -> Result<Seen, RootFsError> {
    let mut seen = Seen::default();
    let mut linked: BTreeMap<(u64, u64), PathBuf> = BTreeMap::new();
    let builder = rustix::process::geteuid().as_raw();
    // Files that an ordinary user unpacked are theirs; in the VM they are root's.
    let owners = |of: &Metadata| if builder != 0 && of.uid() == builder { (0, 0) } else { (of.uid(), of.gid()) };
    for (path, metadata) in &listing.files {
        let source = listing.root.join(path);
        let unreadable = |source| RootFsError::File { path: path.clone(), source };
        let put = |result: Result<(), PutError>| {
            result.map_err(|error| match error {
                PutError::Read(source) => unreadable(source),
                PutError::Write(source) => RootFsError::Write(source),
            })
        };
        match treatment(path, metadata.is_file()) {
            EntryTreatment::Dropped => continue,
            EntryTreatment::Read(account) => {
                // Never through a link: it would lead into this machine.
                if !metadata.is_file() {
                    return Err(unreadable(io::Error::other("it is not a regular file")));
                }
                let group = owners(metadata).1;
                File::open(&source).and_then(|file| seen.remember(&account, group, file)).map_err(unreadable)?;
                continue;
            }
            EntryTreatment::Kept => {}
        }
        let kind = metadata.file_type();
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(metadata.mode() & 0o7777);
        header.set_mtime(0);
        let (user, group) = owners(metadata);
        header.set_uid(user.into());
        header.set_gid(group.into());
        if kind.is_socket() {
            continue;
        }
        let file = (metadata.dev(), metadata.ino());
        let mut node = Node::Other;
        if kind.is_dir() {
            node = Node::Folder;
            header.set_entry_type(EntryType::Directory);
            let mut name = path.clone().into_os_string();
            name.push("/");
            put(image.attributes(&attributes(&source).map_err(unreadable)?))?;
            put(image.file(&mut header, Path::new(&name), 0, io::empty()))?;
        } else if kind.is_symlink() {
            let target = std::fs::read_link(&source).map_err(unreadable)?;
            header.set_entry_type(EntryType::Symlink);
            put(image.link(&mut header, path, target.as_os_str().as_bytes()))?;
            node = Node::Link(target);
        } else if let Some(first) = linked.get(&file) {
            header.set_entry_type(EntryType::Link);
            put(image.link(&mut header, path, first.as_os_str().as_bytes()))?;
        } else if kind.is_file() {
            put(image.attributes(&attributes(&source).map_err(unreadable)?))?;
            let content = File::open(&source).map_err(unreadable)?;
            put(image.file(&mut header, path, metadata.len(), meter.read(content)))?;
        } else {
            header.set_entry_type(match kind {
                _ if kind.is_char_device() => EntryType::Char,
                _ if kind.is_block_device() => EntryType::Block,
                _ => EntryType::Fifo,
            });
            let device = metadata.rdev();
            header.set_device_major(rustix::fs::major(device)).map_err(unreadable)?;
            header.set_device_minor(rustix::fs::minor(device)).map_err(unreadable)?;
            put(image.file(&mut header, path, 0, io::empty()))?;
        }
        if metadata.nlink() > 1 && !kind.is_dir() {
            linked.entry(file).or_insert_with(|| path.clone());
        }
        seen.nodes.insert(path.clone(), node);
    }
    Ok(seen)
}

/// The extended attributes of a file, sorted, without those that belong to this machine.
fn attributes(path: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut names = vec![0; 64 * 1024];
    let size = match rustix::fs::llistxattr(path, &mut names[..]) {
        Err(rustix::io::Errno::NOTSUP) => 0,
        other => other?,
    };
    let mut attributes = Vec::new();
    for name in names[..size].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let Ok(name) = std::str::from_utf8(name) else { continue };
        if name == "security.selinux" || name.starts_with("trusted.") {
            continue;
        }
        let mut value = vec![0; 64 * 1024];
        let size = rustix::fs::lgetxattr(path, name, &mut value[..])?;
        value.truncate(size);
        attributes.push((name.to_owned(), value));
    }
    attributes.sort();
    Ok(attributes)
}

/// What else a root file system may be compressed with, by its first bytes.
pub(crate) fn refuse_other_compression(start: &[u8]) -> Result<(), RootFsError> {
    let known: [(&[u8], &str); 4] =
        [(b"\xfd7zXZ", "xz"), (&[0x28, 0xb5, 0x2f, 0xfd], "zstd"), (b"BZh", "bzip2"), (b"hsqs", "squashfs")];
    let found = known.iter().find(|(magic, _)| start.starts_with(magic));
    found.map_or(Ok(()), |(_, name)| Err(RootFsError::Compressed(name)))
}

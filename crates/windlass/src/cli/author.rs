//! The verbs of people who make releases, with the names, aliases and flags of BOSH. None needs a director.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What to do with a release.
#[derive(Debug, Subcommand)]
pub(crate) enum AuthorVerb {
    /// Make a release directory
    InitRelease {
        #[command(flatten)]
        dir: DirArgs,
        /// Make it a git repository
        #[arg(long)]
        git: bool,
    },
    /// Forget what was built of a release directory
    ResetRelease(DirArgs),
    /// Make a job with nothing in it
    GenerateJob {
        /// Name
        name: String,
        #[command(flatten)]
        dir: DirArgs,
    },
    /// Make a package with nothing in it
    GeneratePackage {
        /// Name
        name: String,
        #[command(flatten)]
        dir: DirArgs,
    },
    /// Create a release from its directory
    #[command(alias = "cr")]
    CreateRelease(CreateReleaseArgs),
    /// Make a release final: from a tarball, a manifest of a version, or a directory's latest version
    FinalizeRelease(FinalizeReleaseArgs),
    /// Take a package, and what it needs, from another release directory as it is there
    VendorPackage {
        /// Package
        package: String,
        /// The other release directory
        source: PathBuf,
        #[command(flatten)]
        dir: DirArgs,
        /// Put this and '-' before the names
        #[arg(long, value_name = "PREFIX", default_value = "")]
        prefix: String,
    },
    /// Show what is in a release's tarball
    InspectLocalRelease {
        /// Tarball
        file: PathBuf,
    },
    /// Write a tarball again with SHA-1 digests
    Sha1ifyRelease(RedigestArgs),
    /// Write a tarball again with SHA-256 digests
    Sha2ifyRelease(RedigestArgs),
    /// List the blobs of a release directory
    Blobs(DirArgs),
    /// Add a file that is too large for git
    AddBlob {
        /// File
        file: PathBuf,
        /// Its path among the blobs
        blob: String,
        #[command(flatten)]
        dir: DirArgs,
    },
    /// Remove such a file
    RemoveBlob {
        /// Its path among the blobs
        blob: String,
        #[command(flatten)]
        dir: DirArgs,
    },
    /// Fetch the blobs that are missing, and remove files that are none
    SyncBlobs(DirArgs),
    /// Put the blobs that are only here into the release's blobstore
    UploadBlobs(DirArgs),
}

/// Where the release is.
#[derive(Debug, Clone, Args)]
pub(crate) struct DirArgs {
    /// Release directory
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct CreateReleaseArgs {
    /// Manifest of a version that was created before: nothing is built
    pub(crate) manifest: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) dir: DirArgs,
    /// Name, if not that of the directory
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Version, such as 1.0.0 or 1.0-beta.2+dev.10, if not the next
    #[arg(long = "version", value_name = "VERSION")]
    pub(crate) release_version: Option<String>,
    /// A dev version with the time in it: 1+dev.TIMESTAMP
    #[arg(long)]
    pub(crate) timestamp_version: bool,
    /// Make it final
    #[arg(long = "final")]
    pub(crate) is_final: bool,
    /// Write a tarball; ((name)) and ((version)) in its path are filled in
    #[arg(long, value_name = "FILE")]
    pub(crate) tarball: Option<PathBuf>,
    /// Go on although git knows of changes without a commit
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FinalizeReleaseArgs {
    /// Tarball, manifest of a version, or release directory
    pub(crate) source: PathBuf,
    #[command(flatten)]
    pub(crate) dir: DirArgs,
    /// Name, if not its own
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Version, if not the next
    #[arg(long = "version", value_name = "VERSION")]
    pub(crate) release_version: Option<String>,
    /// Go on although git knows of changes without a commit
    #[arg(long)]
    pub(crate) force: bool,
}

/// `sha1ify-release`, `sha2ify-release`.
#[derive(Debug, Args)]
pub(crate) struct RedigestArgs {
    /// Tarball
    pub(crate) file: PathBuf,
    /// The new one
    pub(crate) destination: PathBuf,
}

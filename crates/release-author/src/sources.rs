//! Jobs, packages and the licence as their author wrote them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use windlass_release::manifest::check_name;
use windlass_release::{JobSpec, PackageGraph, ReleaseError};

use crate::error::AuthorError;
use crate::fingerprint::{Content, Links, Source, fingerprint};
use crate::glob::glob;
use crate::index::Kind;
use crate::yaml;

/// Something that becomes an archive.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) fingerprint: String,
    /// The packages that it needs directly.
    pub(crate) needs: Vec<String>,
    /// How it is made; a vendored package was made elsewhere.
    pub(crate) recipe: Option<Recipe>,
}

/// How an archive is made.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub(crate) contents: Vec<(Source, Content)>,
    pub(crate) links: Links,
    /// The script that runs before.
    pub(crate) pre_packaging: Option<PathBuf>,
    pub(crate) compress: bool,
}

/// All that a directory has, each kind in the order of names. All mistakes are told at once.
#[derive(Debug, Default)]
pub(crate) struct All {
    pub(crate) jobs: Vec<Sources>,
    pub(crate) packages: Vec<Sources>,
    pub(crate) license: Option<Sources>,
    /// Packages that are not compressed.
    pub(crate) uncompressed: Vec<String>,
}

impl All {
    pub(crate) fn read(release: &Path) -> Result<Self, AuthorError> {
        let mut errors = Vec::new();
        let mut all = Self::default();
        for folder in folders(&release.join("packages"))? {
            match package(release, &folder) {
                Ok(package) => all.packages.push(package),
                Err(error) => errors.push(error),
            }
        }
        for folder in folders(&release.join("jobs"))? {
            match job(&folder) {
                Ok(job) => all.jobs.push(job),
                Err(error) => errors.push(error),
            }
        }
        match license(release) {
            Ok(license) => all.license = license,
            Err(error) => errors.push(error),
        }
        // What cannot be read would be missed by the rest.
        if errors.is_empty() {
            all.check(&mut errors);
        }
        AuthorError::of(errors)?;
        for list in [&mut all.jobs, &mut all.packages] {
            list.sort_by(|one, other| one.name.cmp(&other.name));
        }
        let is_plain = |package: &&Sources| package.recipe.as_ref().is_some_and(|recipe| !recipe.compress);
        all.uncompressed = all.packages.iter().filter(is_plain).map(|package| package.name.clone()).collect();
        Ok(all)
    }

    fn check(&self, errors: &mut Vec<AuthorError>) {
        let mut seen = BTreeMap::new();
        for package in &self.packages {
            if seen.insert(package.name.as_str(), ()).is_some() {
                errors.push(ReleaseError::Twice { kind: "package", name: package.name.clone() }.into());
            }
        }
        for (part, word) in self.packages.iter().map(|it| (it, "package")).chain(self.jobs.iter().map(|it| (it, "job")))
        {
            for needed in part.needs.iter().filter(|needed| !seen.contains_key(needed.as_str())) {
                let of = format!("{word} '{}'", part.name);
                errors.push(AuthorError::NoPackage { package: needed.clone(), of });
            }
        }
        if errors.is_empty() {
            let listed: Vec<_> = self.packages.iter().map(Sources::listed).collect();
            errors.extend(PackageGraph::new(&listed).err().map(AuthorError::from));
        }
    }
}

impl Sources {
    fn listed(&self) -> windlass_release::Package {
        windlass_release::Package {
            name: self.name.clone(),
            version: self.fingerprint.clone(),
            fingerprint: self.fingerprint.clone(),
            sha1: String::new(),
            dependencies: self.needs.clone(),
        }
    }
}

/// The folders in a folder, also behind links.
fn folders(path: &Path) -> Result<Vec<PathBuf>, AuthorError> {
    let failed = |error| AuthorError::Read(path.to_owned(), error);
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut folders = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if fs::metadata(&path).map_err(|error| AuthorError::Read(path.clone(), error))?.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

fn job(folder: &Path) -> Result<Sources, AuthorError> {
    let spec_path = folder.join("spec");
    let text = fs::read_to_string(&spec_path).map_err(|error| AuthorError::Read(spec_path.clone(), error))?;
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let spec = JobSpec::parse(&text, &name).map_err(|error| match error {
        ReleaseError::JobName { listed, found } => AuthorError::JobName { folder: listed, name: found },
        ReleaseError::Yaml(_, source) => AuthorError::Yaml(spec_path.clone(), source),
        ReleaseError::Document(_, source) => AuthorError::Document(spec_path.clone(), source),
        other => other.into(),
    })?;
    check_name("job", &spec.name)?;
    let mut sources = vec![Source::new(&spec_path, "job.MF")];
    for file in ["monit", "properties_schema.json"] {
        let path = folder.join(file);
        if fs::metadata(&path).is_ok() {
            sources.push(Source::new(path, file));
        }
    }
    for template in spec.templates.keys() {
        let name = Path::new("templates").join(template);
        let path = folder.join(&name);
        if fs::metadata(&path).is_err() {
            return Err(AuthorError::NoTemplate { spec: spec_path, template: template.clone(), path });
        }
        sources.push(Source::new(path, name));
    }
    let (fingerprint, contents) = fingerprint(&sources, Links::Followed, &[])?;
    let recipe = Recipe { contents, links: Links::Followed, pre_packaging: None, compress: true };
    Ok(Sources { kind: Kind::Job, name: spec.name, fingerprint, needs: spec.packages, recipe: Some(recipe) })
}

fn license(release: &Path) -> Result<Option<Sources>, AuthorError> {
    let failed = |error| AuthorError::Read(release.to_owned(), error);
    let mut sources = Vec::new();
    for entry in fs::read_dir(release).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if name.as_bytes().starts_with(b"LICENSE") || name.as_bytes().starts_with(b"NOTICE") {
            sources.push(Source::new(release.join(&name), name).without_mode());
        }
    }
    if sources.is_empty() {
        return Ok(None);
    }
    let (fingerprint, contents) = fingerprint(&sources, Links::Kept, &[])?;
    let recipe = Recipe { contents, links: Links::Kept, pre_packaging: None, compress: true };
    let (kind, name) = (Kind::License, "license".to_owned());
    Ok(Some(Sources { kind, name, fingerprint, needs: Vec::new(), recipe: Some(recipe) }))
}

/// A package's `spec`.
struct PackageSpec {
    name: String,
    dependencies: Vec<String>,
    files: Vec<String>,
    excluded: Vec<String>,
    no_compression: bool,
}

fn package(release: &Path, folder: &Path) -> Result<Sources, AuthorError> {
    let lock = yaml::load_if_there(&folder.join("spec.lock"), |root| {
        let name = yaml::text(&root.field("name")?)?;
        Ok((name, yaml::text(&root.field("fingerprint")?)?, yaml::texts(root, "dependencies")?))
    })?;
    if let Some((name, fingerprint, needs)) = lock {
        check_name("package", &name)?;
        return Ok(Sources { kind: Kind::Package, name, fingerprint, needs, recipe: None });
    }
    let spec = yaml::load(&folder.join("spec"), |root| {
        Ok(PackageSpec {
            name: yaml::text(&root.field("name")?)?,
            dependencies: yaml::texts(root, "dependencies")?,
            files: yaml::texts(root, "files")?,
            excluded: yaml::texts(root, "excluded_files")?,
            no_compression: root.optional("no_compression")?.map_or(Ok(false), |flag| flag.boolean())?,
        })
    })?;
    check_name("package", &spec.name)?;
    let roots = Roots::of(release)?;
    let mut sources = Vec::new();
    let packaging = folder.join("packaging");
    if fs::metadata(&packaging).is_err() {
        return Err(AuthorError::NoPackaging { path: packaging, package: spec.name });
    }
    if roots.takes(&packaging)? {
        sources.push(Source::new(packaging, "packaging").without_mode());
    }
    let pre_packaging = folder.join("pre_packaging");
    let is_prepared = fs::metadata(&pre_packaging).is_ok() && roots.takes(&pre_packaging)?;
    if is_prepared {
        sources.push(Source::new(&pre_packaging, "pre_packaging").without_mode());
    }
    sources.extend(files(&roots, &spec)?);
    let (fingerprint, contents) = fingerprint(&sources, Links::Kept, &spec.dependencies)?;
    let recipe = Recipe {
        contents,
        links: Links::Kept,
        pre_packaging: is_prepared.then_some(pre_packaging),
        compress: !spec.no_compression,
    };
    let (kind, needs) = (Kind::Package, spec.dependencies);
    Ok(Sources { kind, name: spec.name, fingerprint, needs, recipe: Some(recipe) })
}

/// The files of a package. What is in `src` hides what is in `blobs`.
fn files(roots: &Roots, spec: &PackageSpec) -> Result<Vec<Source>, AuthorError> {
    let mut found: BTreeMap<PathBuf, Source> = BTreeMap::new();
    for pattern in &spec.files {
        let mut is_missing = true;
        for (name, path) in roots.matching(spec, pattern)? {
            if roots.takes(&path)? {
                is_missing = false;
                found.entry(name.clone()).or_insert_with(|| Source::new(path, name));
            }
        }
        if is_missing {
            return Err(AuthorError::NoFiles { package: spec.name.clone(), pattern: pattern.clone() });
        }
    }
    for pattern in &spec.excluded {
        for (name, _) in roots.matching(spec, pattern)? {
            found.remove(&name);
        }
    }
    for file in ["packaging", "pre_packaging"] {
        if found.contains_key(Path::new(file)) {
            return Err(AuthorError::Special { file, package: spec.name.clone() });
        }
    }
    Ok(found.into_values().collect())
}

/// Where the files of packages are.
struct Roots {
    src: PathBuf,
    blobs: PathBuf,
    /// Where `src` really is.
    real_src: PathBuf,
}

impl Roots {
    fn of(release: &Path) -> Result<Self, AuthorError> {
        let src = release.join("src");
        let real_src = fs::canonicalize(&src).map_err(|_| AuthorError::NoSources(src.clone()))?;
        Ok(Self { src, blobs: release.join("blobs"), real_src })
    }

    /// What matches, first in `src`, with its path below there.
    fn matching(&self, spec: &PackageSpec, pattern: &str) -> Result<Vec<(PathBuf, PathBuf)>, AuthorError> {
        let refused = |why| AuthorError::Pattern { package: spec.name.clone(), pattern: pattern.to_owned(), why };
        let clean = clean(pattern).ok_or_else(|| refused("leads out of the release"))?;
        let mut all = Vec::new();
        for root in [&self.src, &self.blobs] {
            for path in glob(root, &clean).map_err(|error| refused(error.why()))? {
                if let Ok(name) = path.strip_prefix(root) {
                    all.push((name.to_owned(), path));
                }
            }
        }
        Ok(all)
    }

    /// Whether a path is packed: no folder, and no file that is really elsewhere, because a link leads to its folder.
    fn takes(&self, path: &Path) -> Result<bool, AuthorError> {
        let failed = |error| AuthorError::Read(path.to_owned(), error);
        let metadata = fs::symlink_metadata(path).map_err(failed)?;
        if metadata.is_dir() || metadata.is_symlink() {
            return Ok(metadata.is_symlink());
        }
        let real = fs::canonicalize(path).map_err(failed)?;
        Ok(relative(&self.src, path) == relative(&self.real_src, &real))
    }
}

/// The way from one path to another.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let (from, to): (Vec<_>, Vec<_>) = (from.components().collect(), to.components().collect());
    let common = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
    let up = from[common..].iter().map(|_| Component::ParentDir);
    up.chain(to[common..].iter().copied()).collect()
}

/// A pattern without `.`, `..` and double slashes; none if it leads out.
fn clean(pattern: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in pattern.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

//! `windlass cp`: copies files and folders to instances or from them, through their agents.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;
use windlass_archive::copies::{CopyError, pack, unpack};
use windlass_contract::way_in::{WayIn, Work};

use super::scp::{INSTANCE_ID, selected, with_id};
use crate::cli::CpArgs;
use crate::failure::Failure;
use crate::session::Session;
use crate::way_in::{
    InputWriter, NamedLines, OutputReader, RunningWork, VisitedInstance, WorkOutput, interrupts, places,
};

pub(super) async fn run(session: &mut Session<'_>, arguments: &CpArgs) -> Result<(), Failure> {
    let selection = selected(&arguments.paths)?;
    let (target, sources) = arguments.paths.split_last().ok_or(Failure::ScpNoRemote)?;
    let is_remote = |path: &String| path.contains(':');
    let goes_there = is_remote(target);
    if sources.iter().any(|path| is_remote(path) == goes_there) {
        return Err(Failure::CpBothSides);
    }
    let deployment = session.using_deployment()?;
    let places = places(session, &deployment, selection.as_ref()).await?;
    if !goes_there && places.len() > 1 && !target.contains(INSTANCE_ID) {
        return Err(Failure::CpSeveral(places.len()));
    }
    let mut failed = 0;
    for place in &places {
        let here = |path: &str| with_id(path, &place.id).map(PathBuf::from);
        let there = |path: &str| with_id(path.split_once(':').map_or(path, |(_, path)| path), &place.id);
        let mut copy = Copy { session: &mut *session, deployment: &deployment, place, arguments };
        let is_whole = if goes_there {
            copy.send(sources.iter().map(|path| here(path)).collect::<Result<_, _>>()?, there(target)?).await?
        } else {
            let mut is_whole = true;
            for source in sources {
                is_whole &= copy.fetch(there(source)?, here(target)?).await?;
            }
            is_whole
        };
        failed += usize::from(!is_whole);
    }
    match failed {
        0 => Ok(()),
        failed => Err(Failure::CpIncomplete { failed, all: places.len() }),
    }
}

/// Copies from one instance or to it.
struct Copy<'c, 's> {
    session: &'c mut Session<'s>,
    deployment: &'c str,
    place: &'c VisitedInstance,
    arguments: &'c CpArgs,
}

impl Copy<'_, '_> {
    fn begin(&self, work: Work, input: Option<mpsc::Receiver<Vec<u8>>>) -> RunningWork {
        let wanted = WayIn { root: self.arguments.root, work };
        RunningWork::begin(&self.session.director, self.deployment, self.place, &wanted, input, interrupts())
    }

    /// Whether all of it went there.
    async fn send(&mut self, sources: Vec<PathBuf>, path: String) -> Result<bool, Failure> {
        let (sender, input) = mpsc::channel(1);
        let recursive = self.arguments.recursive;
        let packing = tokio::task::spawn_blocking(move || {
            let mut left_out = Vec::new();
            let to = std::io::BufWriter::with_capacity(1 << 16, InputWriter(sender));
            let mut leave_out =
                |path: &Path, why: &str| left_out.push(format!("{} is left out: {why}", path.display()));
            pack(&sources, recursive, to, &mut leave_out).map(|()| left_out)
        });
        let mut work = self.begin(Work::Receive { path }, Some(input));
        let mut lines = NamedLines::default();
        while let Some(said) = work.said.recv().await {
            lines.show(self.session.screen, &self.place.name(), said);
        }
        lines.end(self.session.screen, &self.place.name());
        let ended = work.end().await;
        let packed = packing.await.map_err(|error| Failure::Copy(CopyError::Sending(error.into())))?;
        match (packed, ended) {
            // The other side says better why it broke off.
            (Err(CopyError::Sending(_)), Ok(_)) => Ok(false),
            (Err(error), _) => Err(Failure::Copy(error)),
            (Ok(left_out), Ok(code)) => {
                left_out.iter().for_each(|words| self.session.screen.warning(words));
                Ok(code == 0 && left_out.is_empty())
            }
            (_, Err(lost)) => Err(lost.at(self.place)),
        }
    }

    /// Whether all of it came here.
    async fn fetch(&mut self, path: String, target: PathBuf) -> Result<bool, Failure> {
        // What comes is asked for by its name, so a path that does not say it says too little.
        let is_named = !path.ends_with("/.") && path != ".";
        let name = Path::new(&path).file_name().filter(|_| is_named).map(OsString::from);
        let name = name.ok_or_else(|| Failure::Copy(CopyError::NoName(PathBuf::from(&path))))?;
        let (sender, parts) = mpsc::channel(1);
        let recursive = self.arguments.recursive;
        let unpacking =
            tokio::task::spawn_blocking(move || unpack(OutputReader::new(parts), &target, &[name], recursive));
        let mut work = self.begin(Work::Send { path, recursive }, None);
        let mut lines = NamedLines::default();
        let mut is_taken = true;
        while let Some(said) = work.said.recv().await {
            match said {
                WorkOutput::Output(bytes) => is_taken = is_taken && sender.send(bytes).await.is_ok(),
                errors => lines.show(self.session.screen, &self.place.name(), errors),
            }
            if !is_taken {
                break;
            }
        }
        drop(sender);
        lines.end(self.session.screen, &self.place.name());
        let unpacked = unpacking.await.map_err(|error| Failure::Copy(CopyError::Sending(error.into())))?;
        if !is_taken {
            return unpacked.map(|()| false).map_err(Failure::Copy);
        }
        match (work.end().await, unpacked) {
            // It said why.
            (Ok(1..), Err(CopyError::Nothing)) => Ok(false),
            (Ok(code), Ok(())) => Ok(code == 0),
            (Ok(_), Err(error)) => Err(Failure::Copy(error)),
            (Err(lost), _) => Err(lost.at(self.place)),
        }
    }
}

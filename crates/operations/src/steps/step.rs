//! What a step is, and what it is called.

use futures_util::future::BoxFuture;

use super::StepError;

/// A step of an operation on `S`. Tables of them are written with [`steps!`].
pub(crate) struct Step<S: 'static> {
    pub(crate) id: StepId,
    /// Whether there is nothing to do.
    pub(crate) is_done: fn(&S) -> bool,
    pub(crate) act: Act<S>,
    /// Takes it back.
    pub(crate) undo: Option<Act<S>>,
}

pub(crate) type Act<S> = for<'a> fn(&'a mut S) -> BoxFuture<'a, Result<(), StepError>>;

/// Declares the table of an operation's steps, each as `Id => act, undo take_back, unless |op| is_done;`.
macro_rules! steps {
    ($operation:ty: $($id:ident => $act:expr $(, undo $undo:expr)? $(, unless $is_done:expr)?;)+) => {
        static STEPS: &[$crate::steps::Step<$operation>] = &[$($crate::steps::Step {
            id: $crate::steps::StepId::$id,
            is_done: $crate::steps::step::steps!(@unless $($is_done)?),
            act: |op| Box::pin($act(op)),
            undo: $crate::steps::step::steps!(@undo $($undo)?),
        }),+];
    };
    (@unless) => { |_| false };
    (@unless $is_done:expr) => { $is_done };
    (@undo) => { None };
    (@undo $undo:expr) => { Some(|op| Box::pin($undo(op))) };
}
pub(crate) use steps;

macro_rules! step_ids {
    ($($id:ident = $name:literal,)+) => {
        /// A step, whichever operations have it. People read its [name](Self::name); code goes by its identity.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum StepId {
            $(#[doc = $name] $id,)+
        }

        impl StepId {
            /// What people read while it runs, and in errors.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$id => $name,)+
                }
            }
        }
    };
}

step_ids! {
    CreateVm = "creating VM",
    NameVm = "naming the VM",
    NameDisks = "naming its disks",
    WaitForAgent = "waiting for the agent",
    UpdateSettings = "updating settings",
    IntroduceAgent = "telling the agent who it is",
    RecordVm = "recording the VM",
    DeleteVm = "deleting VM",
    SwapVms = "putting the new VM in its place",
    SwitchOldVmOff = "switching the old VM off",

    CreateDisk = "creating disk",
    AttachDisk = "attaching disk",
    TellHint = "telling the agent about the disk",
    NameDisk = "naming the disk",
    MountDisk = "mounting disk",
    AssociateDisk = "telling the agent the disk's name",
    RecordDisk = "recording the disk",
    UnmountDisk = "unmounting disk",
    ForgetDisk = "making the agent forget the disk",
    DetachDisk = "detaching disk",
    MountRemainingDisk = "mounting the other disk again",

    MountOldDisk = "mounting the old disk",
    AttachNewDisk = "attaching the new disk",
    MigrateDisk = "migrating disk",
    RecordNewDisk = "recording the new disk",
    DetachOldDisk = "detaching the old disk",
    OrphanOldDisk = "orphaning the old disk",

    LookAtDisk = "looking at the disk",
    ReleaseDisk = "releasing the disk",
    ResizeDisk = "resizing disk",
    TakeDiskBack = "taking the disk back",
    CompareSizes = "comparing sizes",
    RecordSize = "recording the size",

    SendSource = "sending its source",
    CompilePackage = "compiling the package",
    FetchPackage = "fetching the compiled package",

    InstallPackages = "installing packages",
    CheckDisk = "checking the disk",
    ConfigureJobs = "configuring jobs",
    PreStart = "executing pre-start",
    StartJobs = "starting jobs",
    PostStart = "executing post-start",
    SkipDrain = "skipped pre-stop & drain",
    PreStop = "executing pre-stop",
    Drain = "executing drain",
    StopJobs = "stopping jobs",
    PostStop = "executing post-stop",
}

impl StepId {
    /// Whether people follow it. The others take a moment, and belong to what is told already.
    pub fn is_told(self) -> bool {
        matches!(
            self,
            Self::SkipDrain
                | Self::PreStop
                | Self::Drain
                | Self::StopJobs
                | Self::PostStop
                | Self::InstallPackages
                | Self::ConfigureJobs
                | Self::PreStart
                | Self::StartJobs
                | Self::PostStart
                | Self::DeleteVm
                | Self::CreateVm
                | Self::SwapVms
                | Self::CreateDisk
                | Self::AttachDisk
                | Self::DetachDisk
                | Self::MigrateDisk
                | Self::ResizeDisk
        )
    }
}

impl std::fmt::Display for StepId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

//! Why a request had no success, and what that tells about its effect.

use std::io;
use std::time::Duration;

/// why the daemon did not do what it was asked
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// the configuration of the connection is wrong
    #[error("{0}")]
    Configuration(String),
    /// no endpoint could be reached; the request had no effect
    #[error("cannot reach the cluster to {doing}: {}; look whether the daemons run and the addresses are right", reasons.join("; "))]
    Unreachable {
        /// What was tried.
        doing: String,
        /// What each endpoint said.
        reasons: Vec<String>,
    },
    /// the server is another one than the pinned one; the request was not sent
    #[error(
        "{endpoint} has the certificate {found}, and 'server_fingerprint' is {pinned}; if the cluster's certificate was renewed, \
         give its new fingerprint, otherwise somebody else answers there"
    )]
    WrongServer {
        endpoint: String,
        /// What it shows.
        found: String,
        /// What it should show.
        pinned: String,
    },
    /// the server does not know our certificate
    #[error(
        "{endpoint} does not trust the client certificate; add it to the trust store for the project '{project}', or give another \
         one as 'certificate' and 'private_key'"
    )]
    Untrusted {
        endpoint: String,
        /// Where we want to work.
        project: String,
    },
    /// the API is not the one that we speak
    #[error(
        "{endpoint} speaks version '{found}' of the API, and this CPI speaks '1.0'; use Incus from 6.0 or LXD from 5.0"
    )]
    UnknownApi {
        endpoint: String,
        /// What it says.
        found: String,
    },
    /// the server lacks something that we need
    #[error("{endpoint} lacks the API extensions {}; use Incus from 6.0 or LXD from 5.0", missing.join(", "))]
    MissingExtensions {
        endpoint: String,
        /// What it lacks.
        missing: Vec<String>,
    },
    /// the database of the cluster has no leader; the request had no effect
    #[error("the cluster has no quorum: {text}; start enough of its members")]
    NoQuorum {
        /// What the daemon said.
        text: String,
    },
    /// the request was sent and its answer did not arrive: its effect is unknown
    #[error("the answer to the request to {doing} was lost")]
    LostAnswer {
        /// What was asked.
        doing: String,
        #[source]
        source: io::Error,
    },
    /// the operation is not known any more: its effect is unknown
    #[error("the daemon forgot the operation to {doing}, because it was restarted or the operation ended")]
    ForgottenOperation {
        /// What was asked.
        doing: String,
    },
    /// the operation goes on
    #[error("the operation to {doing} has not ended after {patience:?}; it goes on in the daemon")]
    TooSlow {
        /// What was asked.
        doing: String,
        /// How long it was waited for.
        patience: Duration,
    },
    /// the answer is no answer of this API
    #[error("the answer to the request to {doing} is not understood: {reason}")]
    NotUnderstood {
        /// What was asked.
        doing: String,
        /// What is wrong with it.
        reason: String,
    },
    /// the daemon refused, at once or at the end of an operation
    #[error("cannot {doing}: {text}")]
    Refused {
        /// What was asked.
        doing: String,
        /// As in HTTP.
        code: u16,
        /// What the daemon said.
        text: String,
    },
}

/// What a daemon says of things on a member that does not answer.
const MEMBER_DOWN: [&str; 7] = [
    "missing event connection",
    "member is unavailable",
    "unable to connect to",
    "is down",
    "is offline",
    "couldn't find a cluster member",
    "no suitable cluster member",
];

impl ClientError {
    /// What the daemon said, if it refused.
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Refused { text, .. } => Some(text),
            _ => None,
        }
    }

    fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether the refusal has these words; texts differ between versions, so they only choose between retry, done and words.
    pub fn says(&self, words: &str) -> bool {
        self.refusal().is_some_and(|text| text.to_ascii_lowercase().contains(&words.to_ascii_lowercase()))
    }

    /// What was asked about, or something that it names, is not there.
    pub fn is_missing(&self) -> bool {
        self.code() == Some(404)
    }

    /// Somebody changed the object since it was read.
    pub fn is_stale(&self) -> bool {
        self.code() == Some(412)
    }

    /// The name is taken.
    pub fn is_taken(&self) -> bool {
        self.code() == Some(409)
            || ["already exists", "already in use", "unique constraint"].iter().any(|words| self.says(words))
    }

    /// Another operation changes the object.
    pub fn is_busy(&self) -> bool {
        self.says("is busy running a") || self.says("a matching non-reusable operation")
    }

    /// The object is on a member that does not answer.
    pub fn is_member_down(&self) -> bool {
        MEMBER_DOWN.iter().any(|words| self.says(words))
    }

    /// The request may have had its effect: only a look at the object tells.
    pub fn is_unknown_effect(&self) -> bool {
        matches!(self, Self::LostAnswer { .. } | Self::ForgottenOperation { .. } | Self::NotUnderstood { .. })
    }

    /// The same request may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::NoQuorum { .. } | Self::TooSlow { .. })
            || self.is_unknown_effect()
            || self.is_busy()
            || self.is_member_down()
            || self.says("is evacuated")
    }
}

//! What can go wrong between a caller and an agent.

use std::time::Duration;

use windlass_contract::AgentId;

/// How far a caller got towards an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The VM exists; no address of it answered.
    VmCreated,
    /// An address accepted the connection.
    AddressAnswers,
    /// The agent proved who it is.
    Tls,
    /// The agent accepted who the caller is.
    Authenticated,
    /// The agent answered a message.
    Pong,
}

impl Stage {
    /// What to look at when nothing came after this stage.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::VmCreated => {
                "check that the VM runs, that its agent started, and that its network can be reached from here"
            }
            Self::AddressAnswers => {
                "check that the agent itself listens there, and that both certificates come from the CA that the other side trusts"
            }
            Self::Tls => "check the agent's log: it took the connection and did not answer",
            Self::Authenticated => "check the agent's log: it took the message and did not answer",
            Self::Pong => "try again",
        }
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::VmCreated => "VM created",
            Self::AddressAnswers => "address answers",
            Self::Tls => "TLS",
            Self::Authenticated => "authenticated",
            Self::Pong => "pong",
        })
    }
}

/// why a message to an agent failed
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// the agent cannot be reached, or the connection broke
    #[error("agent {agent} at {address} cannot be reached (last stage: {stage}); {}", stage.remedy())]
    Unreachable {
        agent: AgentId,
        /// What was dialled.
        address: String,
        /// The last stage that was reached.
        stage: Stage,
        /// Why it went no further.
        #[source]
        source: TransportError,
    },
    /// the caller may not speak any more
    #[error("agent {agent} was not asked to {method}: another director took over")]
    NotPermitted { agent: AgentId, method: String },
    /// the agent refused user and password
    #[error(
        "agent {agent} at {address} refused the user and password; they are those of env.bosh.mbus.urls at create_vm, so another \
         VM may have taken the address"
    )]
    Unauthorized {
        agent: AgentId,
        /// What was dialled.
        address: String,
    },
    /// the agent answered that the action failed
    #[error("agent {agent} failed to {method}: {message}")]
    Exception {
        agent: AgentId,
        method: String,
        /// The agent's words.
        message: String,
    },
    /// the caller cancelled it
    #[error("agent {agent} was told to end {method}, because that was cancelled")]
    Cancelled { agent: AgentId, method: String },
    /// no answer in time
    #[error(
        "agent {agent} at {address} did not finish {method} within {after:?} (last stage: {stage}); {}", stage.remedy()
    )]
    TimedOut {
        agent: AgentId,
        /// What was dialled.
        address: String,
        method: String,
        /// How long the caller waited.
        after: Duration,
        /// The last stage that was reached.
        stage: Stage,
    },
    /// a file of the caller's cannot be read or written
    #[error("cannot exchange a blob with agent {agent}, because of the file {path} here")]
    File {
        agent: AgentId,
        path: std::path::PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// the answer is none that an agent gives
    #[error("agent {agent} at {address} answered {method} with {problem}; check that it is a BOSH agent")]
    BadReply {
        agent: AgentId,
        /// What was dialled.
        address: String,
        method: String,
        /// What is wrong with the answer.
        problem: String,
    },
}

impl CallError {
    /// How far the caller got.
    pub fn stage(&self) -> Stage {
        match self {
            Self::Unreachable { stage, .. } | Self::TimedOut { stage, .. } => *stage,
            Self::Unauthorized { .. } => Stage::Tls,
            Self::File { .. } | Self::NotPermitted { .. } => Stage::VmCreated,
            Self::Exception { .. } | Self::BadReply { .. } | Self::Cancelled { .. } => Stage::Authenticated,
        }
    }

    /// Whether the agent does not know the action.
    pub fn is_unknown_message(&self) -> bool {
        matches!(self, Self::Exception { message, .. } if message.contains("unknown message"))
    }

    /// Whether the message did not get through, so that asking again later may help.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::TimedOut { .. })
    }

    /// True for identity failures: the agent answers, but its certificate or our credentials are rejected. Retrying will not
    /// help.
    pub(crate) fn is_mistrust(&self) -> bool {
        match self {
            Self::Unauthorized { .. } => true,
            Self::Unreachable { source, .. } => {
                matches!(source, TransportError::Tls(error) if is_certificate_problem(error))
            }
            _ => false,
        }
    }
}

fn is_certificate_problem(error: &std::io::Error) -> bool {
    use rustls::{AlertDescription as Alert, Error};
    matches!(
        error.get_ref().and_then(|inner| inner.downcast_ref()),
        Some(
            Error::InvalidCertificate(_)
                | Error::AlertReceived(
                    Alert::CertificateRequired
                        | Alert::BadCertificate
                        | Alert::UnknownCA
                        | Alert::CertificateUnknown
                        | Alert::CertificateExpired
                        | Alert::AccessDenied
                        | Alert::DecryptError
                )
        )
    )
}

/// why a connection or an exchange over it failed
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// no address of the agent is known
    #[error("no address of the agent is known; the VM's networks have none")]
    NoAddress,
    /// the agent's id cannot stand in a certificate
    #[error("the agent's id cannot stand in a DNS name, so no certificate can prove it")]
    NoName,
    /// the connection was not accepted
    #[error("connection not accepted")]
    Connect(#[source] std::io::Error),
    /// the address did not answer in time
    #[error("no answer to the connection within {0:?}")]
    ConnectTimedOut(Duration),
    #[error("TLS handshake failed")]
    Tls(#[source] std::io::Error),
    /// the handshake did not end in time
    #[error("TLS handshake not finished within {0:?}")]
    TlsTimedOut(Duration),
    /// the answer is too large
    #[error("the answer has more than {0} bytes")]
    TooLarge(usize),
    /// the exchange broke off
    #[error("the connection broke")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
}

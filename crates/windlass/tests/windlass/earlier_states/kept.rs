//! A state that `make` kept, opened where nobody else is.

use std::fs;
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::time::{Duration, Instant};

use windlass_database::sqlx::{self, AnyConnection, AssertSqlSafe, Connection};
use windlass_rigs::earlier_states::Kept;

pub(crate) const WINDLASS: &str = env!("CARGO_BIN_EXE_windlass");

/// How long a test waits for the same test of somebody else on this machine.
const OTHERS: Duration = Duration::from_secs(300);

/// Makes a database of a state in `folder` as it was left.
pub(crate) async fn load(kept: &Kept, database: &str, folder: &Path, path: &Path) {
    let connection = connect(kept, database, folder, &format!("sqlite:{}?mode=rwc", path.display())).await;
    connection.close().await.unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Makes a database as it was left, at `url`.
pub(crate) async fn connect(kept: &Kept, database: &str, folder: &Path, url: &str) -> AnyConnection {
    sqlx::any::install_default_drivers();
    let mut connection = AnyConnection::connect(url).await.unwrap();
    let statements = AssertSqlSafe(kept.statements(database, folder));
    sqlx::raw_sql(statements).execute(&mut connection).await.unwrap();
    connection
}

/// Certificates and records have addresses in them, so all runs of a test use the same network, one after the other.
pub(crate) fn claim_network(prefix: &str) -> UnixListener {
    let address = SocketAddr::from_abstract_name(format!("windlass-test-network-{prefix}")).unwrap();
    let deadline = Instant::now() + OTHERS;
    loop {
        match UnixListener::bind_addr(&address) {
            Ok(claim) => {
                let agents = (9..=20).map(|number| format!("{prefix}.{number}:6868"));
                let left: Vec<_> = agents.filter(|agent| TcpStream::connect(agent).is_ok()).collect();
                assert!(left.is_empty(), "a run that was killed left VMs at {left:?}; end them");
                return claim;
            }
            Err(error) => assert!(Instant::now() < deadline, "somebody else uses {prefix}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

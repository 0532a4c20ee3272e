//! `windlass env`: which director this is.

use windlass_director_client::answers::{Certificate, Info};

use crate::failure::Failure;
use crate::session::{Session, While};
use crate::table::Table;

pub(crate) async fn run(session: &mut Session<'_>, details: bool) -> Result<(), Failure> {
    let info: Info = session.director.get("/info").await.while_("asking the director who it is")?;
    let hides_unknown = session.screen.is_for_people();
    session.screen.table(&table(info, hides_unknown));
    if details {
        let certificates = session.director.get("/director/certificate_expiry").await;
        session.screen.table(&expiry(certificates.while_("asking when certificates expire")?));
    }
    Ok(())
}

fn expiry(certificates: Vec<Certificate>) -> Table {
    let row = |certificate: Certificate| {
        vec![certificate.certificate_path, certificate.expiry, certificate.days_left.to_string()]
    };
    Table {
        title: Some("CERTIFICATE EXPIRY DATE INFORMATION".to_owned()),
        header: vec!["Certificate", "Expiry Date (UTC)", "Days Left"],
        rows: certificates.into_iter().map(row).collect(),
        ..Table::default()
    }
}

/// What a director that runs in no VM of a stemcell says in the place of its operating system.
const NO_STEMCELL: &str = "-";

/// Scripts get the row of an unknown stemcell, as from BOSH's client; it tells people nothing.
pub(super) fn table(info: Info, hides_unknown: bool) -> Table {
    let features: Vec<_> = info
        .features
        .0
        .iter()
        .map(|(name, feature)| format!("{name}: {}", if feature.status { "enabled" } else { "disabled" }))
        .collect();
    let user = if info.user.is_empty() { "(not logged in)".to_owned() } else { info.user };
    let mut header = vec!["Name", "UUID", "Version"];
    let mut row = vec![info.name, info.uuid, info.version];
    if !(info.stemcell_os.is_empty() || hides_unknown && info.stemcell_os == NO_STEMCELL) {
        header.push("Director Stemcell");
        row.push(format!("{}/{}", info.stemcell_os, info.stemcell_version));
    }
    header.extend(["CPI", "Features", "User"]);
    row.extend([info.cpi, features.join("\n"), user]);
    Table { header, rows: vec![row], transpose: true, ..Table::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_director_is_shown_as_by_the_original() {
        let info = r#"{"name":"TestDirector","uuid":"deadbeef","version":"0.0.0 (96f91352)","user":"test","cpi":"test-cpi",
            "stemcell_os":"-","stemcell_version":"-","user_authentication":{"type":"basic","options":{}},
            "features":{"local_dns":{"status":true},"snapshots":{"status":true},"config_server":{"status":false}}}"#;
        let expected = "TestDirector\t\ndeadbeef\t\n0.0.0 (96f91352)\t\n-/-\t\ntest-cpi\t\nconfig_server: disabled\t\n\
                        local_dns: enabled\t\nsnapshots: enabled\t\ntest\t\n";
        let read = || serde_json::from_str(info).unwrap();
        assert_eq!(table(read(), false).for_scripts(), expected);
        assert_eq!(table(read(), true).for_scripts(), expected.replace("-/-\t\n", ""), "for people");
    }
}

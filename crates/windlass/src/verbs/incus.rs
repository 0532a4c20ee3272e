//! `windlass cpi incus …`: what an operator sets up and looks at in a cluster, beside the calls of directors.

use windlass_cloud_incus::operator::{self, Resource};
use windlass_cloud_incus::trust::{self, Wanted};

use crate::cli::{IncusTrustArgs, IncusVerb};
use crate::failure::Failure;
use crate::screen::Screen;
use crate::table::Table;

pub(crate) async fn run(screen: &mut Screen, verb: IncusVerb) -> Result<(), Failure> {
    match verb {
        IncusVerb::Trust(arguments) => establish(screen, arguments).await,
        IncusVerb::List { config } => {
            screen.table(&table(operator::list(&config).await?));
            Ok(())
        }
    }
}

async fn establish(screen: &mut Screen, arguments: IncusTrustArgs) -> Result<(), Failure> {
    let IncusTrustArgs { token, project, name, pool, network, output } = arguments;
    let token = if token == "-" { super::read_document("-".as_ref())? } else { token };
    let name = name.unwrap_or_else(|| project.clone());
    let wanted = Wanted { project: project.clone(), name, pool, network };
    let done = trust::establish(&token, &wanted, &output).await?;
    let made = if done.made_project { "was made" } else { "was there" };
    screen.told(&format!("The project '{project}' {made}, and the certificate {} may use it alone.", done.fingerprint));
    screen.told(&format!("The cluster answers at {}.", done.endpoints.join(", ")));
    screen.told(&format!("In director.yml: cpi: {{exec: incus, config: {}}}", output.display()));
    Ok(())
}

fn table(resources: Vec<Resource>) -> Table {
    let row = |resource: Resource| {
        let said = |key: &str| resource.metadata.get(key).cloned().unwrap_or_default();
        vec![
            resource.kind.to_owned(),
            resource.cid.clone(),
            resource.member.clone().unwrap_or_default(),
            said("deployment"),
            resource.vm.clone().unwrap_or_default(),
            resource.details.clone(),
        ]
    };
    Table {
        content: "resources",
        header: vec!["Kind", "CID", "Member", "Deployment", "VM", "Details"],
        rows: resources.into_iter().map(row).collect(),
        ..Table::default()
    }
}

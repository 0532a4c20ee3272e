//! Recordings of a deployment with links, a vip, a dynamic network, `vm_resources` and a VM extension, whose disks grow natively and by
//! copying, and whose VMs are swapped, lost and cleaned up, sent to a director on the simulated cloud.
//!
//! `data/misc.jsonl` has what was recorded, trimmed as `data/recordings.jsonl` is.

use super::Report;
use super::recording::Recording;
use super::software::{Player, SHOP_1, errors};

/// Where ours differs, and why that is meant. Everything else has to be the same.
const MEANT: &[(&str, &str, &str)] =
    &[("clean-up-all-misc", "result", "the recorded one tells of the VM that it deleted, and counts none")];
/// Stages that are not compared: there is no DNS of jobs here, so nothing of it is deleted, and who asks for `use_dns_addresses` is
/// warned.
const OF_DNS: [&str; 2] = ["Deleting dns blobs", "warning"];

/// What has to be so before a scenario, because something else was recorded in between.
fn prepare(player: &Player, scenario: &str) {
    match scenario {
        "upload-stemcell-api-version-3" => upload_release(player),
        "deploy-after-delete-vm" => {
            let instances = player.client.get("/deployments/misc/instances");
            let hot = instances.as_array().unwrap().iter().find(|instance| instance["job"] == "hot").unwrap();
            let path = format!("/vms/{}", hot["cid"].as_str().unwrap());
            assert_eq!(player.client.task("DELETE", &path, "", "").state, "done");
        }
        "clean-up-all-misc" => {
            let orphans = player.client.get("/orphaned_vms");
            player.call("27733", orphans[0]["cid"].as_str().unwrap());
        }
        // The clean-up before took both.
        "deploy-one" => {
            upload_release(player);
            player.site.upload_empty_stemcell("ubuntu-stemcell", "toronto-os", "3");
        }
        _ => {}
    }
}

fn upload_release(player: &Player) {
    let task = player.client.task("POST", "/releases", "application/x-compressed", SHOP_1.to_vec());
    assert_eq!(task.state, "done", "{task:?}");
}

#[test]
fn a_recorded_client_gets_the_same_of_networks_links_swapped_vms_and_growing_disks() {
    let player = Player::with_settings("enable_cpi_resize_disk: true\n");
    let mut report = Report::meaning(MEANT);
    let recordings = Recording::of_networks();
    for recording in &recordings {
        prepare(&player, &recording.name);
        player.replay_steps(recording, &mut report, &OF_DNS);
    }
    println!("{} scenarios replayed; {} meant differences, and DNS", recordings.len(), MEANT.len());
    assert!(report.differences.is_empty(), "{}\n{}", report.differences.join("\n"), errors(&player.site));
    let unused = report.unused();
    assert!(unused.is_empty(), "these differences are gone: {unused:?}");
    assert!(player.site.rows(&["leaks"]).is_empty());
    assert!(player.site.in_cloud("vms").is_empty());
}

//! Jobs whose templates need Ruby.

use windlass_rigs::own_machine::is_own_machine;

use super::Shop;
use super::release::Sources;
use crate::site::Site;

/// A template with a class of its own.
const TEMPLATE: &str =
    "\n<% class Word; def self.loud(word); word.upcase; end; end %>\n<%= Word.loud(p('greeting')) %>\n";

fn shop(settings: &str) -> Shop {
    let shop = Shop { site: Site::ready_with_containers(settings), os: "windlass-minimal" };
    shop.configure_cloud(true);
    shop.upload(&Sources { template: TEMPLATE, ..Sources::default() });
    shop.manifest("1", "{}");
    shop
}

#[test]
fn a_job_that_needs_ruby_is_rendered_by_it_and_plans_say_so() {
    if !is_own_machine("software::ruby::a_job_that_needs_ruby_is_rendered_by_it_and_plans_say_so") {
        return;
    }
    let shop = shop("");
    let inspected = shop.site.ok(&["inspect-release", "greeter/1"]);
    assert!(inspected.contains("template 'greeting.erb' (line 2) needs Ruby for"), "{inspected}");
    let planned = shop.site.ok(&["-d", "example", "plan", &shop.site.manifest()]);
    let why = "job 'greeter' of release 'greeter': template 'greeting.erb' (line 2) needs Ruby for";
    assert!(planned.contains(&format!("rendered by Ruby: {why}")), "{planned}");
    shop.site.deploy();
    assert_eq!(shop.greeting("front"), "HELLO world");
    let explained = shop.site.ok(&["-d", "example", "explain", "front/0"]);
    assert!(explained.contains(why), "{explained}");
    let planned = shop.site.ok(&["-d", "example", "plan", &shop.site.manifest()]);
    assert!(planned.contains("nothing to do"), "{planned}");
    shop.site.ok(&["-n", "-d", "example", "delete-deployment"]);
}

#[test]
fn without_ruby_a_job_that_needs_it_is_refused_before_anything_changes() {
    if !is_own_machine("software::ruby::without_ruby_a_job_that_needs_it_is_refused_before_anything_changes") {
        return;
    }
    let shop = shop("ruby: none\n");
    let said = shop.site.fails(&["-n", "-d", "example", "deploy", &shop.site.manifest()]);
    let expected = "job 'greeter' cannot be rendered: template 'greeting.erb' (line 2) needs Ruby for";
    assert!(said.contains(expected) && said.contains("the director's settings say 'ruby: none'"), "{said}");
    assert!(shop.site.in_cloud("vms").is_empty());
}

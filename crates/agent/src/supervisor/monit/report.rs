//! What monit says about services: XML, of which a few elements are read.

use windlass_supervise::{Health, ServiceStatus, Usage};

use super::super::GROUP;

/// All services at one moment.
#[derive(Debug, Default, PartialEq)]
pub(super) struct MonitReport {
    /// Another one for each start of monit.
    pub(super) incarnation: String,
    services: Vec<Reported>,
    /// The names of those that directors start and stop.
    group: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Reported {
    pub(super) name: String,
    pub(super) pending: bool,
    /// 0 for none that is looked after, 2 for one that was not looked at yet.
    pub(super) monitor: u32,
    status: u32,
    message: String,
    uptime: u64,
    memory: u64,
    memory_share: f64,
    cpu: f64,
}

impl MonitReport {
    /// What is not there is nought or empty, as with the original.
    pub(super) fn read(xml: &str) -> Self {
        let root = elements(xml, "monit").next().unwrap_or_default();
        let services = elements(root.content, "services").next().unwrap_or_default();
        let groups = elements(root.content, "servicegroups").next().unwrap_or_default();
        let group = elements(groups.content, "servicegroup").find(|group| group.attribute("name") == GROUP);
        let members = elements(group.unwrap_or_default().content, "service");
        Self {
            incarnation: root.attribute("incarnation"),
            services: elements(services.content, "service").map(|service| Reported::of(&service)).collect(),
            group: members.map(|member| text(member.content)).collect(),
        }
    }

    /// Those of the group of jobs.
    pub(super) fn in_group(&self) -> impl Iterator<Item = &Reported> {
        self.services.iter().filter(|service| self.group.contains(&service.name))
    }
}

impl Reported {
    fn of(service: &Element<'_>) -> Self {
        let value =
            |content: &str, name: &str| elements(content, name).next().map(|it| text(it.content)).unwrap_or_default();
        let number = |name: &str| value(service.content, name).parse::<u32>().unwrap_or_default();
        let within = |outer: &str, name: &str| {
            let outer = elements(service.content, outer).next().unwrap_or_default();
            value(outer.content, name).parse::<f64>().unwrap_or_default()
        };
        // Older ones have the name in an element.
        let name = Some(service.attribute("name")).filter(|name| !name.is_empty());
        Self {
            name: name.unwrap_or_else(|| value(service.content, "name")),
            pending: number("pendingaction") > 0,
            monitor: number("monitor"),
            status: number("status"),
            message: value(service.content, "status_message"),
            uptime: number("uptime").into(),
            memory: within("memory", "kilobytetotal") as u64,
            memory_share: within("memory", "percenttotal"),
            cpu: within("cpu", "percenttotal"),
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.status > 0 && !self.message.is_empty()
    }

    /// The same, as our own supervisor would say it.
    pub(super) fn status(&self) -> ServiceStatus {
        let health = match (self.monitor, self.status) {
            (0, _) => Health::Unmonitored,
            (2, _) => Health::Starting,
            (_, 0) => Health::Running,
            _ => Health::Failing,
        };
        ServiceStatus {
            name: self.name.clone(),
            groups: vec![GROUP.to_owned()],
            is_process: true,
            health,
            is_pending: self.pending,
            is_stopped: self.monitor == 0,
            has_stop_failed: self.has_failed(),
            pid: None,
            uptime: Some(self.uptime * 1000),
            fault: None,
            event: None,
            usage: Some(Usage { memory: self.memory, memory_share: self.memory_share, cpu: self.cpu }),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Element<'a> {
    attributes: &'a str,
    content: &'a str,
}

impl Element<'_> {
    fn attribute(&self, name: &str) -> String {
        let start = format!("{name}=\"");
        let value = self.attributes.split_once(&start).and_then(|(_, rest)| rest.split_once('"'));
        value.map(|(value, _)| unescaped(value)).unwrap_or_default()
    }
}

/// The elements with this name, of which none is inside another.
fn elements<'a>(xml: &'a str, name: &str) -> impl Iterator<Item = Element<'a>> {
    let (start, end) = (format!("<{name}"), format!("</{name}>"));
    let mut rest = xml;
    std::iter::from_fn(move || {
        loop {
            let (_, after) = rest.split_once(start.as_str())?;
            rest = after;
            if !after.starts_with([' ', '>', '/', '\t', '\n', '\r']) {
                continue;
            }
            let (attributes, after) = after.split_once('>')?;
            if let Some(attributes) = attributes.strip_suffix('/') {
                rest = after;
                return Some(Element { attributes, content: "" });
            }
            let (content, after) = after.split_once(end.as_str())?;
            rest = after;
            return Some(Element { attributes, content });
        }
    })
}

fn text(content: &str) -> String {
    let content = content.trim();
    match content.strip_prefix("<![CDATA[").and_then(|content| content.strip_suffix("]]>")) {
        Some(content) => content.to_owned(),
        None => unescaped(content),
    }
}

fn unescaped(text: &str) -> String {
    [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")]
        .iter()
        .fold(text.to_owned(), |text, (escaped, letter)| text.replace(escaped, letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_of_the_group_are_read_with_what_they_take() {
        let xml = r#"<?xml version="1.0" encoding="ISO-8859-1"?><monit id="1" incarnation="77" version="5.2.5">
            <server><uptime>5</uptime></server>
            <services><service name="a&amp;b"><type>3</type><status>0</status><monitor>1</monitor><pendingaction>0</pendingaction>
              <uptime>88</uptime><memory><percent>1.0</percent><percenttotal>2.5</percenttotal><kilobytetotal>4004</kilobytetotal></memory>
              <cpu><percenttotal>0.5</percenttotal></cpu></service>
            <service name="down"><status>512</status><status_message><![CDATA[failed to start]]></status_message><monitor>1</monitor>
              <pendingaction>1</pendingaction></service>
            <service name="new"><monitor>2</monitor></service><service name="left"><monitor>0</monitor></service>
            <service name="system"><monitor>1</monitor></service></services>
            <servicegroups><servicegroup name="other"><service>system</service></servicegroup>
            <servicegroup name="vcap"><service>a&amp;b</service><service>down</service><service>new</service><service>left</service></servicegroup>
            </servicegroups></monit>"#;
        let report = MonitReport::read(xml);
        assert_eq!(report.incarnation, "77");
        let services: Vec<ServiceStatus> = report.in_group().map(Reported::status).collect();
        let told: Vec<_> = services.iter().map(|service| (service.name.as_str(), service.health)).collect();
        assert_eq!(
            told,
            [
                ("a&b", Health::Running),
                ("down", Health::Failing),
                ("new", Health::Starting),
                ("left", Health::Unmonitored)
            ]
        );
        assert_eq!(services[0].usage, Some(Usage { memory: 4004, memory_share: 2.5, cpu: 0.5 }));
        assert_eq!(services[0].uptime, Some(88_000));
        assert!(services[1].has_stop_failed && services[1].is_pending);
        for rubbish in ["", "<monit", "<monit>", "<monit></monit>", "nonsense"] {
            assert_eq!(MonitReport::read(rubbish).in_group().count(), 0, "{rubbish}");
        }
    }
}

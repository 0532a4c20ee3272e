//! IPv6 where the stemcell has switched it off.

use std::io;
use std::path::Path;

use windlass_durable::file;

use super::Linux;
use super::command::tool;
use super::network::NetworkError;

impl Linux {
    /// Switches IPv6 on. If the kernel was started without it, the machine starts again, and so does the agent.
    pub(super) fn enable_ipv6(&self) -> Result<(), NetworkError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| NetworkError::Io { path, source }
        };
        let replace = |path: &Path, pairs: &[(&str, &str)]| -> Result<bool, NetworkError> {
            let found = std::fs::read_to_string(path).map_err(failed(path))?;
            let replaced = pairs.iter().fold(found.clone(), |text, (from, to)| text.replace(from, to));
            if replaced == found {
                return Ok(false);
            }
            file::write(path, replaced.as_bytes(), 0o644).map_err(failed(path))?;
            Ok(true)
        };
        let switches = ["net.ipv6.conf.all.disable_ipv6", "net.ipv6.conf.default.disable_ipv6"];
        let pairs = switches.map(|switch| (format!("{switch}=1"), format!("{switch}=0")));
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
        replace(&self.root.at("/etc/sysctl.d/60-bosh-sysctl.conf"), &pairs)?;
        let boots = ["/boot/grub/grub.cfg", "/boot/efi/EFI/grub/grub.cfg"].map(|path| self.root.at(path));
        let boot = boots.iter().find(|path| path.exists()).unwrap_or(&boots[0]);
        if replace(boot, &[("ipv6.disable=1", "")])? {
            tracing::info!("the machine starts again, because its kernel was started without IPv6");
            tool("shutdown", ["-r", "now"]).run()?;
            return Err(failed(boot)(io::Error::other("the machine is starting again to have IPv6")));
        }
        for setting in [
            "net.ipv6.conf.all.accept_ra=1",
            "net.ipv6.conf.default.accept_ra=1",
            "net.ipv6.conf.all.disable_ipv6=0",
            "net.ipv6.conf.default.disable_ipv6=0",
        ] {
            tool("sysctl", [setting]).run()?;
        }
        Ok(())
    }
}

//! What stands between the client and the server.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use longshore_sidecar_config::LogLevel;
use serde_json::Value;
use tempfile::TempDir;

use super::call::{KEY, Prepared};
use super::harness::config::{keys, rule};
use super::harness::peer::free_port;
use super::harness::{Files, Request, config, eventually, process};

const NGINX: &str = "/usr/sbin/nginx";

/// A way from the client to the server.
pub(crate) struct Proxy<'a> {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    /// Whose time is counted.
    pub(crate) process: Option<u32>,
    pub(crate) prepared: &'a Prepared,
}

impl<'a> Proxy<'a> {
    pub(crate) fn new(name: &str, address: SocketAddr, process: u32, prepared: &'a Prepared) -> Self {
        Self { name: name.to_owned(), address, process: Some(process), prepared }
    }

    /// None.
    pub(crate) fn direct(server: SocketAddr, prepared: &'a Prepared) -> Self {
        Self { name: "direct".to_owned(), address: server, process: None, prepared }
    }
}

/// The sidecar as it is in a pod: with keys, rules, limits and an audit log, which nobody reads.
pub(crate) struct Sidecar {
    child: Child,
    pub(crate) mcp: SocketAddr,
    pub(crate) process: u32,
    _files: Files,
}

impl Sidecar {
    pub(crate) fn start(server: SocketAddr) -> Self {
        let mut config = config(server.port());
        config.log_level = LogLevel::Info;
        config.access = vec![rule("readers", &["get_*", "echo"], &["*"], &["file://docs/*"])];
        let files = Files::new();
        files.write_with_keys(
            &config,
            &keys(&[("other", "another key"), ("bench", KEY), ("third", "a third key")]),
        );
        let mut command = process::command(&files);
        for flag in ["--mcp-addr", "--admin-addr", "--peers-addr"] {
            command.args([flag, "127.0.0.1:0"]);
        }
        let mut child = command.stdout(Stdio::null()).spawn().expect("the sidecar");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr")).lines().map_while(Result::ok);
        let line: Value = lines
            .by_ref()
            .filter_map(|line| serde_json::from_str(&line).ok())
            .find(|line: &Value| line["message"] == "listening")
            .expect("it listens");
        // So that it can go on writing.
        std::thread::spawn(move || lines.for_each(drop));
        let address =
            |name: &str| line[name].as_str().and_then(|text| text.parse().ok()).expect("an address");
        let (mcp, admin) = (address("mcp"), address("admin"));
        eventually("it is ready", || {
            (Request::new("GET", "/readyz").send(admin).status == 200).then_some(())
        });
        Self { process: child.id(), child, mcp, _files: files }
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        process::end(&mut self.child);
    }
}

/// nginx, as plain as it can be: it keeps its connections to the server, and writes no log.
pub(crate) struct Nginx {
    child: Child,
    pub(crate) address: SocketAddr,
    _directory: TempDir,
}

impl Nginx {
    pub(crate) fn start(server: SocketAddr) -> Self {
        install();
        let directory = tempfile::tempdir().expect("a directory");
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let path = directory.path().display();
        let text = format!(
            "daemon off; master_process off; worker_processes 1; pid {path}/pid; error_log stderr crit;
             events {{ worker_connections 1024; }}
             http {{
               access_log off; client_body_temp_path {path}/body; proxy_temp_path {path}/proxy;
               fastcgi_temp_path {path}/fastcgi; uwsgi_temp_path {path}/uwsgi; scgi_temp_path {path}/scgi;
               keepalive_requests 1000000000;
               upstream server {{ server {server}; keepalive 256; keepalive_requests 1000000000; }}
               server {{
                 listen {address};
                 location / {{
                   proxy_pass http://server; proxy_http_version 1.1; proxy_set_header Connection \"\";
                   proxy_buffering off;
                 }}
               }}
             }}"
        );
        let file = directory.path().join("nginx.conf");
        std::fs::write(&file, text).expect("a file");
        let mut command = Command::new(NGINX);
        let child = command.args(["-p", "/", "-c"]).arg(&file).spawn().expect("nginx");
        eventually("nginx listens", || TcpStream::connect(address).ok());
        Self { child, address, _directory: directory }
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Installs Debian's package, where there is none.
fn install() {
    if std::path::Path::new(NGINX).exists() {
        return;
    }
    for arguments in
        [&["update", "-qq"][..], &["install", "-qq", "-y", "--no-install-recommends", "nginx-light"]]
    {
        let mut command = Command::new("apt-get");
        // What is started here would be in the way.
        command.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
        let status = command.args(arguments).stdout(Stdio::null()).status().expect("apt-get");
        assert!(status.success(), "this needs nginx: apt-get install --no-install-recommends nginx-light");
    }
}

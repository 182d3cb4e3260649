//! Which pages may talk to the gateway (G10).

use axum::http::{HeaderMap, header};

/// The origins that are let in.
#[derive(Clone, Debug)]
pub struct Origins {
    /// Listed by the operator, as a browser writes them: `https://example.com`.
    pub listed: Vec<String>,
    /// The gateway listens on a loopback address only. Then the page's host must be a loopback one too:
    /// a name that an attacker points at this machine is no origin of ours.
    pub loopback_only: bool,
}

impl Origins {
    /// Whether a request may pass. What is no browser sends no origin and passes: it needs its token.
    pub fn allow(&self, headers: &HeaderMap) -> bool {
        let Some(origin) = headers.get(header::ORIGIN) else { return true };
        let Ok(origin) = origin.to_str() else { return false };
        if self.listed.iter().any(|listed| listed == "*" || listed == origin) {
            return true;
        }
        let Some((_, authority)) = origin.split_once("://") else { return false };
        if is_loopback(authority) {
            return self.loopback_only || same_host(headers, authority);
        }
        !self.loopback_only && same_host(headers, authority)
    }
}

fn same_host(headers: &HeaderMap, authority: &str) -> bool {
    headers.get(header::HOST).and_then(|host| host.to_str().ok()) == Some(authority)
}

fn is_loopback(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g10_origins_are_checked_against_a_list() {
        let listed = ["https://app.example.com"].map(str::to_owned).to_vec();
        let table = [
            (true, None, "127.0.0.1:80", true),
            (true, Some("http://localhost:5173"), "127.0.0.1:80", true),
            (true, Some("http://[::1]:80"), "127.0.0.1:80", true),
            (true, Some("https://app.example.com"), "127.0.0.1:80", true),
            (true, Some("https://evil.example.com"), "127.0.0.1:80", false),
            (true, Some("http://evil.example.com"), "evil.example.com", false),
            (true, Some("http://localhost.evil.example.com"), "127.0.0.1:80", false),
            (true, Some("null"), "127.0.0.1:80", false),
            (false, Some("https://gateway.example.com"), "gateway.example.com", true),
            (false, Some("https://evil.example.com"), "gateway.example.com", false),
            (false, Some("http://localhost:80"), "gateway.example.com", false),
        ];
        for (loopback_only, origin, host, allowed) in table {
            let origins = Origins { listed: listed.clone(), loopback_only };
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().unwrap());
            }
            assert_eq!(origins.allow(&headers), allowed, "{origin:?} at {host}");
        }
    }
}

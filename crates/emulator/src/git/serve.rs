//! Serves smart HTTP: `git http-backend` as a CGI process handles the protocol, the emulator handles names and
//! credentials.

use std::path::PathBuf;

use tokio::sync::OnceCell;

use super::{EmulatedGit, EmulatedGitError, failure};

/// Path of the backend among git's own programs. Running it directly saves the process of `git http-backend`.
static BACKEND: OnceCell<PathBuf> = OnceCell::const_new();

/// A request for the repository in terms of CGI.
pub(crate) struct CgiRequest<'a> {
    pub(crate) method: &'a str,
    /// Path after the repository, such as `info/refs`.
    pub(crate) service: &'a str,
    pub(crate) query: &'a str,
    pub(crate) content_type: &'a str,
    pub(crate) content_encoding: &'a str,
    /// Value of the header `Git-Protocol`.
    pub(crate) protocol: &'a str,
    pub(crate) user: &'a str,
    pub(crate) body: &'a [u8],
}

/// Answer of the CGI process.
pub(crate) struct CgiAnswer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl EmulatedGit {
    /// Answers one request of a git client.
    pub(crate) async fn serve(
        &self,
        request: &CgiRequest<'_>,
    ) -> Result<CgiAnswer, EmulatedGitError> {
        let backend = BACKEND.get_or_try_init(async || {
            let out = self.run(&["--exec-path"], &[]).await?;
            Ok::<_, EmulatedGitError>(
                PathBuf::from(String::from_utf8_lossy(&out).trim()).join("git-http-backend"),
            )
        });
        let mut command = self.program(backend.await?, &[]);
        command
            .env("GIT_PROJECT_ROOT", self.directory())
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("PATH_INFO", format!("/{}", request.service))
            .env("REQUEST_METHOD", request.method)
            .env("QUERY_STRING", request.query)
            .env("CONTENT_TYPE", request.content_type)
            .env("CONTENT_LENGTH", request.body.len().to_string())
            .env("HTTP_CONTENT_ENCODING", request.content_encoding)
            .env("GIT_PROTOCOL", request.protocol)
            .env("REMOTE_USER", request.user)
            .env("REMOTE_ADDR", "127.0.0.1");
        let out = self.output(command, request.body).await?;
        answer(&out.stdout).ok_or_else(|| failure("http-backend", &out.stderr))
    }
}

/// Parses header lines, an empty line and the body. The status is one of the headers.
fn answer(out: &[u8]) -> Option<CgiAnswer> {
    let end = out.windows(4).position(|window| window == b"\r\n\r\n")?;
    let mut answer = CgiAnswer {
        status: 200,
        headers: Vec::new(),
        body: out[end + 4..].to_vec(),
    };
    for line in String::from_utf8_lossy(&out[..end]).lines() {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("status") {
            answer.status = value.split_whitespace().next()?.parse().ok()?;
        } else {
            answer
                .headers
                .push((name.to_owned(), value.trim().to_owned()));
        }
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_taken_out_of_the_headers() {
        let answer =
            answer(b"Status: 404 Not Found\r\nContent-Type: text/plain\r\n\r\nno").unwrap();
        assert_eq!(answer.status, 404);
        assert_eq!(
            answer.headers,
            [("Content-Type".to_owned(), "text/plain".to_owned())]
        );
        assert_eq!(answer.body, b"no");
        assert!(super::answer(b"garbage").is_none());
    }
}

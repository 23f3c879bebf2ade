//! Limits for the bodies of deliveries: how many bytes at a time, and for how long.
//!
//! - *bounded*: the memory of all bodies together stays below [`DeliveryLimits::in_flight`]. A body counts with the memory that
//!   is reserved for it, which grows with the received bytes; an announced length reserves nothing.
//! - *small ones do not wait*: the first [`FIRST`] bytes of every body have their own memory, so that a few large
//!   bodies that arrive slowly delay no other delivery. Deliveries are rarely larger.
//! - *nobody waits forever*: the bytes, and the room for them, come within [`DeliveryLimits::time`], or the delivery is refused.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use futures::StreamExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::forges::SenderCheck;
use crate::telemetry::{Metric, Metrics};

/// Maximum size of a body in bytes. GitHub, whose payloads are the largest, caps them at 25 MB.
pub const MAX_BODY_BYTES: usize = 25 * 1024 * 1024;

/// Number of bytes of each body for which there is always room.
const FIRST: usize = 64 * 1024;

/// Limits of all bodies of one server.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryLimits {
    /// Maximum memory in bytes for bodies that are being received or stored.
    pub in_flight: usize,
    /// Maximum time from the headers of a delivery to the last byte of its body.
    pub time: Duration,
}

impl Default for DeliveryLimits {
    fn default() -> Self {
        Self {
            in_flight: 256 * 1024 * 1024,
            time: Duration::from_secs(30),
        }
    }
}

/// Reason why a body was not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BodyRefusal {
    /// The body is larger than a forge sends.
    #[error("the body is larger than 25 MiB")]
    TooLarge,
    /// The sender was too slow.
    #[error("the body did not arrive in time")]
    TooSlow,
    /// Other bodies use all the memory for bodies.
    #[error("the server is receiving too many large deliveries at the same time")]
    NoRoom,
    /// The connection broke off, or the body is not what HTTP allows.
    #[error("the body could not be received")]
    Broken,
}

/// Receives bodies within the limits.
pub(super) struct BodyReader {
    limits: DeliveryLimits,
    /// Permits for the first bytes of a body.
    first: Arc<Semaphore>,
    /// Permits for all bytes after the first ones.
    rest: Arc<Semaphore>,
    metrics: Metrics,
}

/// A body with the memory that is reserved for it.
pub(super) struct ReceivedBody {
    pub bytes: Vec<u8>,
    /// Reserved memory, released on drop.
    pub room: BodyMemory,
}

/// Memory reserved for a body.
pub(super) struct BodyMemory {
    _first: OwnedSemaphorePermit,
    rest: Option<OwnedSemaphorePermit>,
    bytes: usize,
    metrics: Metrics,
}

impl BodyReader {
    /// Creates the limits. A quarter of the memory is for the first bytes of bodies.
    pub fn new(limits: DeliveryLimits, metrics: Metrics) -> Self {
        let first = (limits.in_flight / 4 / FIRST).max(1);
        Self {
            limits,
            first: Arc::new(Semaphore::new(first)),
            rest: Arc::new(Semaphore::new(
                limits.in_flight.saturating_sub(first * FIRST),
            )),
            metrics,
        }
    }

    /// Receives a body, and passes each piece to the check of its sender.
    pub async fn receive(
        &self,
        body: Body,
        mut check: Option<&mut (dyn SenderCheck + 'static)>,
    ) -> Result<ReceivedBody, BodyRefusal> {
        let deadline = Instant::now() + self.limits.time;
        let announced = body.size_hint();
        if announced.lower() > MAX_BODY_BYTES as u64 {
            return Err(BodyRefusal::TooLarge);
        }
        // Memory grows at most to the announced length, which hyper holds the sender to.
        let most = announced.exact().map_or(MAX_BODY_BYTES, |exact| {
            usize::try_from(exact).unwrap_or(MAX_BODY_BYTES)
        });
        let mut room = timeout_at(deadline, self.place())
            .await
            .map_err(|_| BodyRefusal::NoRoom)?;
        let mut bytes = Vec::new();
        let mut frames = body.into_data_stream();
        loop {
            let next = timeout_at(deadline, frames.next())
                .await
                .map_err(|_| BodyRefusal::TooSlow)?;
            let Some(frame) = next.transpose().map_err(|_| BodyRefusal::Broken)? else {
                return Ok(ReceivedBody { bytes, room });
            };
            let needed = bytes.len() + frame.len();
            if needed > MAX_BODY_BYTES {
                return Err(BodyRefusal::TooLarge);
            }
            if needed > bytes.capacity() {
                let capacity = (bytes.capacity() * 2).max(FIRST).min(most).max(needed);
                let grown = timeout_at(deadline, self.grow(&mut room, capacity)).await;
                grown.map_err(|_| BodyRefusal::NoRoom)?;
                bytes.reserve_exact(capacity - bytes.len());
            }
            if let Some(check) = check.as_deref_mut() {
                check.update(&frame);
            }
            bytes.extend_from_slice(&frame);
        }
    }

    async fn place(&self) -> BodyMemory {
        let first = Arc::clone(&self.first)
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        BodyMemory {
            _first: first,
            rest: None,
            bytes: 0,
            metrics: self.metrics.clone(),
        }
    }

    /// Waits until there is room for a body of this size.
    async fn grow(&self, room: &mut BodyMemory, capacity: usize) {
        let wanted = capacity.saturating_sub(FIRST.max(room.bytes));
        if wanted > 0 {
            let wanted = u32::try_from(wanted).expect("no body is larger than 25 MiB");
            let more = Arc::clone(&self.rest)
                .acquire_many_owned(wanted)
                .await
                .expect("the semaphore is never closed");
            match &mut room.rest {
                Some(rest) => rest.merge(more),
                None => room.rest = Some(more),
            }
        }
        room.metrics.change(
            Metric::DeliveryBodyBytes,
            &[],
            number(capacity) - number(room.bytes),
        );
        room.bytes = capacity;
    }
}

impl Drop for BodyMemory {
    fn drop(&mut self) {
        self.metrics
            .change(Metric::DeliveryBodyBytes, &[], -number(self.bytes));
    }
}

fn number(bytes: usize) -> f64 {
    u32::try_from(bytes).map_or(0.0, f64::from)
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use futures::stream;

    use super::*;

    const MIB: usize = 1024 * 1024;

    fn intake(in_flight: usize, time: Duration) -> BodyReader {
        BodyReader::new(DeliveryLimits { in_flight, time }, Metrics::default())
    }

    fn in_use(intake: &BodyReader) -> String {
        let text = intake.metrics.render();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("lockkeeper_delivery_body_bytes "));
        line.unwrap_or("0").to_owned()
    }

    /// Returns a body that sends these bytes without an announced length, and then nothing more.
    fn unfinished(bytes: usize) -> Body {
        let frames = stream::iter(frames(bytes));
        Body::from_stream(frames.chain(stream::pending()))
    }

    fn unannounced(bytes: usize) -> Body {
        Body::from_stream(stream::iter(frames(bytes)))
    }

    fn frames(bytes: usize) -> impl Iterator<Item = Result<Bytes, std::io::Error>> {
        let sizes = (0..bytes)
            .step_by(FIRST)
            .map(move |at| FIRST.min(bytes - at));
        sizes.map(|size| Ok(Bytes::from(vec![b' '; size])))
    }

    async fn refused(intake: &BodyReader, body: Body) -> BodyRefusal {
        intake
            .receive(body, None)
            .await
            .err()
            .expect("the body is refused")
    }

    #[tokio::test]
    async fn memory_is_reserved_for_what_has_arrived_and_given_back() {
        let intake = intake(64 * MIB, Duration::from_hours(1));
        for (body, reserved) in [
            (Body::empty(), 0),
            (Body::from("x"), 1),
            (Body::from(vec![0; 3 * MIB]), 3 * MIB),
        ] {
            let received = intake
                .receive(body, None)
                .await
                .unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(received.bytes.capacity(), reserved);
            assert_eq!(in_use(&intake), reserved.to_string());
            drop(received);
            assert_eq!(in_use(&intake), "0");
        }
        let received = intake
            .receive(unannounced(3 * MIB), None)
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(
            (received.bytes.len(), received.bytes.capacity()),
            (3 * MIB, 4 * MIB),
            "it doubles"
        );
        assert_eq!(in_use(&intake), (4 * MIB).to_string());
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused_and_if_it_says_so_before_anything_is_read() {
        let intake = intake(64 * MIB, Duration::from_hours(1));
        assert_eq!(
            refused(&intake, Body::from(vec![0; MAX_BODY_BYTES + 1])).await,
            BodyRefusal::TooLarge
        );
        assert_eq!(
            refused(&intake, unannounced(MAX_BODY_BYTES + 1)).await,
            BodyRefusal::TooLarge
        );
        assert_eq!(in_use(&intake), "0");
        let received = intake.receive(unannounced(MAX_BODY_BYTES), None).await;
        assert_eq!(
            received
                .unwrap_or_else(|error| panic!("{error}"))
                .bytes
                .len(),
            MAX_BODY_BYTES
        );
    }

    #[tokio::test]
    async fn a_body_that_does_not_come_to_its_end_is_refused() {
        let intake = intake(64 * MIB, Duration::ZERO);
        assert_eq!(refused(&intake, unfinished(0)).await, BodyRefusal::TooSlow);
        assert_eq!(in_use(&intake), "0");
    }

    #[tokio::test]
    async fn large_bodies_wait_for_room_and_small_ones_do_not() {
        let patient = Arc::new(intake(16 * MIB, Duration::from_hours(1)));
        // Three of 4 MiB take all the room of large bodies but for their own beginnings.
        let held: Vec<_> = (0..3).map(|_| Body::from(vec![0; 4 * MIB])).collect();
        let mut held: Vec<_> =
            futures::future::join_all(held.into_iter().map(|body| patient.receive(body, None)))
                .await;
        let waiting = Arc::clone(&patient);
        let waiting = tokio::spawn(async move {
            waiting
                .receive(Body::from(vec![0; 4 * MIB]), None)
                .await
                .is_ok()
        });
        let small = patient.receive(Body::from(vec![0; FIRST]), None).await;
        assert!(small.is_ok(), "there is room for the beginning of a body");
        assert!(!waiting.is_finished());
        held.pop();
        assert!(
            waiting.await.unwrap(),
            "the room of another body is free again"
        );

        let hasty = intake(16 * MIB, Duration::ZERO);
        let _all = Arc::clone(&hasty.rest)
            .acquire_many_owned(u32::try_from(12 * MIB).unwrap())
            .await
            .unwrap();
        assert_eq!(
            refused(&hasty, Body::from(vec![0; 4 * MIB])).await,
            BodyRefusal::NoRoom
        );
        assert!(hasty.receive(Body::from("small"), None).await.is_ok());
    }
}

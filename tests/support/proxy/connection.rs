//! One client's connection and the server's connection that belongs to it.
//!
//! The two ends live differently long: while a request of this connection is held, the server's end
//! stays open though the client has gone, because a late statement comes from a connection that the
//! server still believes in.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::controls::{Controls, Fate, Verdict};
use super::wire::Message;

/// What held requests and the two directions share.
pub(super) struct Link {
    to_server: mpsc::UnboundedSender<Message>,
    /// Taken when the client's side is closed.
    to_client: tokio::sync::Mutex<Option<OwnedWriteHalf>>,
    /// What is to become of the replies, by the id of the request.
    fates: Mutex<HashMap<i32, Fate>>,
    /// Requests that are held, or released and not answered.
    late: watch::Sender<usize>,
    client_gone: CancellationToken,
    server_gone: CancellationToken,
    /// The client's end is to be reset.
    reset: CancellationToken,
}

impl Link {
    pub(super) fn note_held(&self) {
        self.late.send_modify(|late| *late += 1);
    }

    pub(super) fn release(&self, message: Message, answered: oneshot::Sender<()>) {
        if message.expects_reply() {
            self.set_fate(&message, Fate::Late(answered));
        } else {
            let _ = answered.send(());
            self.late.send_modify(|late| *late -= 1);
        }
        // When the server's end is closed, the fate is dropped, and with it the sender: whoever waits
        // hears of it.
        if let Err(lost) = self.to_server.send(message) {
            self.take_fate(lost.0.request_id());
        }
    }

    fn set_fate(&self, request: &Message, fate: Fate) {
        let mut fates = self.fates.lock().expect("never poisoned");
        fates.insert(request.request_id(), fate);
    }

    fn take_fate(&self, request_id: i32) -> Fate {
        let fate = self.fates.lock().expect("never poisoned").remove(&request_id);
        fate.unwrap_or(Fate::Deliver)
    }

    async fn deliver(&self, reply: &Message, wait: Duration) {
        let deliver = async {
            tokio::time::sleep(wait).await;
            if let Some(stream) = self.to_client.lock().await.as_mut() {
                // A client that has gone is noticed by the other direction.
                let _ = stream.write_all(reply.bytes()).await;
            }
        };
        tokio::select! {
            () = deliver => {}
            () = self.client_gone.cancelled() => {}
        }
    }

    /// Closes the client's end, whose other half is closed already: with a reset if it was cut off, else
    /// in order.
    async fn close_client(&self) {
        self.client_gone.cancel();
        let Some(stream) = self.to_client.lock().await.take() else {
            return;
        };
        if self.reset.is_cancelled() {
            let _ = stream.as_ref().set_zero_linger();
            // A plain drop would send an orderly end before the reset.
            stream.forget();
        }
    }
}

/// Serves one client until it is gone and nothing of it is held. `open` ends it with a reset.
pub(super) async fn serve(client: TcpStream, target: String, controls: Arc<Controls>, open: CancellationToken) {
    let Ok(server) = TcpStream::connect(&target).await else {
        let _ = client.set_zero_linger();
        return;
    };
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (send, outbox) = mpsc::unbounded_channel();
    let link = Arc::new(Link {
        to_server: send,
        to_client: tokio::sync::Mutex::new(Some(to_client)),
        fates: Mutex::default(),
        late: watch::Sender::new(0),
        client_gone: CancellationToken::new(),
        server_gone: CancellationToken::new(),
        reset: CancellationToken::new(),
    });
    let sending = tokio::spawn(send_all(outbox, to_server));
    let replying = tokio::spawn(replies(from_server, link.clone(), controls.clone()));
    tokio::select! {
        () = requests(from_client, &link, &controls) => {}
        () = open.cancelled() => link.reset.cancel(),
        () = link.reset.cancelled() => {}
        () = link.server_gone.cancelled() => {}
    }
    link.close_client().await;
    let mut late = link.late.subscribe();
    tokio::select! {
        _ = late.wait_for(|late| *late == 0) => {}
        () = link.server_gone.cancelled() => {}
    }
    replying.abort();
    sending.abort();
    // Whoever waits for the answer to a released request is told that none will come.
    link.fates.lock().expect("never poisoned").clear();
}

/// The only writer of the server's end, so that released and ordinary requests never interleave.
async fn send_all(mut outbox: mpsc::UnboundedReceiver<Message>, mut to_server: OwnedWriteHalf) {
    while let Some(message) = outbox.recv().await {
        if to_server.write_all(message.bytes()).await.is_err() {
            return;
        }
    }
}

/// Returns when the client has closed.
async fn requests(mut from_client: OwnedReadHalf, link: &Arc<Link>, controls: &Controls) {
    while let Ok(Some(message)) = Message::read(&mut from_client).await {
        match controls.on_request(message, link) {
            Verdict::Forward { message, after, reply } => {
                tokio::time::sleep(after).await;
                if message.expects_reply() && !matches!(reply, Fate::Deliver) {
                    link.set_fate(&message, reply);
                }
                if link.to_server.send(message).is_err() {
                    return;
                }
            }
            Verdict::Reset => link.reset.cancel(),
            Verdict::Swallowed | Verdict::Held => {}
        }
    }
}

/// Returns when the server has closed. It reads on while the client has gone, for what is late.
async fn replies(mut from_server: OwnedReadHalf, link: Arc<Link>, controls: Arc<Controls>) {
    let _gone = link.server_gone.clone().drop_guard();
    while let Ok(Some(message)) = Message::read(&mut from_server).await {
        let fate = link.take_fate(message.response_to());
        if matches!(fate, Fate::Reset) {
            link.reset.cancel();
            continue;
        }
        let Some(wait) = controls.on_reply(matches!(fate, Fate::Drop)) else {
            continue;
        };
        match fate {
            Fate::Delay(more) => link.deliver(&message, wait + more).await,
            Fate::Late(answered) => {
                link.deliver(&message, wait).await;
                let _ = answered.send(());
                link.late.send_modify(|late| *late -= 1);
            }
            Fate::Deliver | Fate::Drop | Fate::Reset => link.deliver(&message, wait).await,
        }
    }
}

// An application on stompjs: it answers by a NACK until the sidecar has sent a message again.
const [port, destination] = process.argv.slice(2);

async function run() {
  const { Client } = await import("@stomp/stompjs");
  const { TCPWrapper } = await import("@stomp/tcp-wrapper");
  const client = new Client({
    webSocketFactory: () => new TCPWrapper("127.0.0.1", Number(port)),
    connectHeaders: { login: "admin", passcode: "admin" },
    onStompError: () => process.exit(1),
  });
  client.onConnect = () => {
    const receive = (message) => {
      if ("amqsidecarRedeliveryCount" in message.headers) {
        console.log("succeeded");
        message.ack();
        return;
      }
      console.log("failed");
      message.nack();
    };
    client.subscribe(destination, receive, { ack: "client-individual" });
    console.log("ready");
  };
  client.activate();
}

run();

// An application on stompit: it answers in the way that it is told until the sidecar has sent a message again.
const [port, destination, answer] = process.argv.slice(2);
const stompit = require("stompit");

const login = { login: "admin", passcode: "admin", "heart-beat": "0,0" };
stompit.connect({ host: "127.0.0.1", port: Number(port), connectHeaders: login }, (failure, client) => {
  if (failure) throw failure;
  client.on("error", () => process.exit(1));
  client.subscribe({ destination, ack: "client-individual" }, (error, message) => {
    if (error) throw error;
    message.readString("utf-8", () => {
      if ("amqsidecarRedeliveryCount" in message.headers) {
        console.log("succeeded");
        client.ack(message);
        return;
      }
      console.log("failed");
      if (answer === "nack") client.nack(message);
      if (answer === "disconnect") client.destroy();
    });
  });
  console.log("ready");
});

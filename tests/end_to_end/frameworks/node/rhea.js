// An application on rhea: it answers in the way that it is told until the sidecar has sent a message again.
const [port, address, answer] = process.argv.slice(2);
const container = require("rhea");

container.on("receiver_open", () => console.log("ready"));
container.on("message", ({ message, delivery }) => {
  if ("amqsidecarRedeliveryCount" in (message.application_properties || {})) {
    console.log("succeeded");
    delivery.accept();
    return;
  }
  console.log("failed");
  if (answer === "throw") throw new Error("the application fails");
  if (answer === "reject") delivery.reject({ condition: "app:no-stock", description: "article 4711" });
  if (answer === "modify") delivery.modified({ delivery_failed: true, undeliverable_here: false });
  if (answer === "postpone")
    delivery.modified({ delivery_failed: true, message_annotations: { "x-opt-delivery-delay": 1000 } });
});
container
  .connect({ host: "127.0.0.1", port: Number(port), username: "admin", password: "admin", reconnect: false })
  .open_receiver({ source: { address, capabilities: ["queue"] }, autoaccept: answer === "throw", credit_window: 1 });

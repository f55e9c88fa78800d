<?php
// An application on PHP's extension stomp: it fails until the sidecar has sent a message again.
[, $port, $queue, $answer] = $argv;
$stomp = new Stomp("tcp://127.0.0.1:$port", "admin", "admin", ["accept-version" => "1.2"]);
$stomp->setReadTimeout(1);
$stomp->subscribe($queue, ["id" => "1", "ack" => $answer === "auto" ? "auto" : "client-individual"]);
echo "ready\n";
while (true) {
    $frame = $stomp->readFrame();
    if ($frame === false) continue;
    if (isset($frame->headers["amqsidecarRedeliveryCount"])) {
        echo "succeeded\n";
        if ($answer !== "auto") $stomp->ack($frame, ["id" => $frame->headers["ack"]]);
        continue;
    }
    echo "failed\n";
    if ($answer === "nack") $stomp->nack($frame, ["id" => $frame->headers["ack"]]);
    if ($answer === "exit") exit(1);
}

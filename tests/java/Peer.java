import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageEOFException;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.ObjectOutputStream;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/**
 * A JMS application under remote control: one JSON command per line in, one JSON answer per line out.
 *
 * <p>Command: {@code {"id": 1, "op": "consume", "provider": "openwire|core|qpid", "url": "...", ...}}.
 * Answer: {@code {"id": 1, "result": ...}} or {@code {"id": 1, "error": "...", "trace": "..."}}.
 * Consumers in the background report {@code {"consumer": "name", "event": {...}}} in between.
 * The Python side, support/jms/peer.py, documents each command. The process ends with its input.
 */
public final class Peer {
  static final ObjectMapper JSON = new ObjectMapper();
  static final int INDIVIDUAL_ACKNOWLEDGE = 101;
  static final int AMQP_ACCEPTED = 1;
  static final int AMQP_REJECTED = 2;
  static final long POLL_MS = 100;
  static final Map<String, Flaky> FLAKY = new ConcurrentHashMap<>();
  static final Map<String, SteadyProducer> PRODUCERS = new ConcurrentHashMap<>();
  static PrintStream out;

  public static void main(String[] args) throws Exception {
    out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
    System.setOut(System.err);
    ExecutorService commands = Executors.newCachedThreadPool();
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      JsonNode command = JSON.readTree(line);
      commands.execute(() -> answer(command));
    }
    Runtime.getRuntime().halt(0);
  }

  static void answer(JsonNode command) {
    ObjectNode reply = JSON.createObjectNode();
    reply.set("id", command.get("id"));
    try {
      reply.set("result", perform(command));
    } catch (Throwable failure) {
      StringWriter trace = new StringWriter();
      failure.printStackTrace(new PrintWriter(trace));
      reply.put("error", failure.toString()).put("trace", trace.toString());
    }
    write(reply);
  }

  static void write(JsonNode line) {
    synchronized (Peer.class) {
      out.println(line);
      out.flush();
    }
  }

  static JsonNode perform(JsonNode c) throws Exception {
    return switch (c.get("op").asText()) {
      case "produce" -> produce(c);
      case "produce_each" -> produceEach(c);
      case "produce_core" -> produceCore(c);
      case "xa_prepare" -> xaPrepare(c);
      case "xa_finish" -> xaFinish(c);
      case "consume" -> consume(c);
      case "fail" -> fail(c);
      case "subscribe" -> subscribe(c);
      case "unsubscribe" -> unsubscribe(c);
      case "browse" -> browse(c);
      case "fill" -> fill(c);
      case "drain" -> drain(c);
      case "forward" -> forward(c);
      case "move" -> move(c);
      case "start_flaky" -> startFlaky(c);
      case "stop_flaky" -> stopFlaky(c);
      case "start_producer" -> startProducer(c);
      case "stop_producer" -> stopProducer(c);
      default -> throw new IllegalArgumentException("unknown op: " + c.get("op"));
    };
  }

  // ---- connecting -------------------------------------------------------------------------------

  static Connection connect(JsonNode c) throws JMSException {
    String url = c.get("url").asText();
    ConnectionFactory factory =
        switch (c.get("provider").asText()) {
          case "openwire" -> {
            var openwire = new org.apache.activemq.ActiveMQConnectionFactory(url);
            openwire.setTrustAllPackages(true);
            yield openwire;
          }
          case "core" -> {
            var core = new org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory(url);
            core.setDeserializationAllowList("*");
            yield core;
          }
          case "qpid" -> new org.apache.qpid.jms.JmsConnectionFactory(url);
          default -> throw new IllegalArgumentException("unknown provider: " + c.get("provider"));
        };
    Connection connection =
        factory.createConnection(c.path("user").asText(null), c.path("password").asText(null));
    try {
      if (c.hasNonNull("clientId")) {
        connection.setClientID(c.get("clientId").asText());
      }
      connection.start();
      return connection;
    } catch (JMSException failure) {
      connection.close();
      throw failure;
    }
  }

  static Destination destination(Session session, String name) throws JMSException {
    if (name.startsWith("topic://")) {
      return session.createTopic(name.substring(8));
    }
    return session.createQueue(name.startsWith("queue://") ? name.substring(8) : name);
  }

  static MessageConsumer consumer(Session session, JsonNode c) throws JMSException {
    Destination from = destination(session, c.get("destination").asText());
    String selector = c.path("selector").asText(null);
    if (c.hasNonNull("subscription")) {
      String name = c.get("subscription").asText();
      return switch (c.path("shared").asText("")) {
        case "durable" -> session.createSharedDurableConsumer((Topic) from, name, selector);
        case "non-durable" -> session.createSharedConsumer((Topic) from, name, selector);
        default -> session.createDurableSubscriber((Topic) from, name, selector, false);
      };
    }
    return session.createConsumer(from, selector);
  }

  // ---- producing --------------------------------------------------------------------------------

  static JsonNode produce(JsonNode c) throws Exception {
    ArrayNode sent = JSON.createArrayNode();
    try (Connection connection = connect(c)) {
      boolean transacted = c.path("transacted").asBoolean();
      Session session = session(connection, transacted);
      MessageProducer producer = producer(session, c);
      int number = 0;
      for (int round = 0; round < c.path("count").asInt(1); round++) {
        for (JsonNode type : c.get("types")) {
          Message message = message(session, type.asText(), c);
          decorate(session, message, c, number++);
          producer.send(message);
          sent.add(describe(message));
        }
      }
      if (transacted) {
        session.commit();
      }
    }
    return sent;
  }

  /** Sends messages that differ in everything, over one connection. */
  static JsonNode produceEach(JsonNode c) throws Exception {
    ArrayNode sent = JSON.createArrayNode();
    try (Connection connection = connect(c)) {
      Session session = session(connection, false);
      for (JsonNode one : c.get("messages")) {
        Message message = message(session, text(one, "type"), one);
        decorate(session, message, one, 0);
        try (MessageProducer producer = producer(session, one)) {
          producer.send(message);
        }
        sent.add(describe(message));
      }
    }
    return sent;
  }

  /** Sends messages by the Core API, which knows no JMS: any type byte, body and property. */
  static JsonNode produceCore(JsonNode c) throws Exception {
    try (var locator =
            org.apache.activemq.artemis.api.core.client.ActiveMQClient.createServerLocator(
                c.get("url").asText());
        var sessions = locator.createSessionFactory();
        var session =
            sessions.createSession(
                c.path("user").asText(null), c.path("password").asText(null), false, true, true,
                false, 1)) {
      for (JsonNode one : c.get("messages")) {
        var message = session.createMessage((byte) one.get("coreType").asInt(), true);
        message.setRoutingType(org.apache.activemq.artemis.api.core.RoutingType.ANYCAST);
        message.getBodyBuffer().writeBytes(HexFormat.of().parseHex(one.path("body").asText("")));
        for (Iterator<Map.Entry<String, JsonNode>> i = one.path("properties").fields();
            i.hasNext(); ) {
          Map.Entry<String, JsonNode> property = i.next();
          message.putObjectProperty(property.getKey(), coreValue(property.getValue()));
        }
        try (var producer = session.createProducer(one.get("destination").asText())) {
          producer.send(message);
        }
      }
    }
    return JSON.createObjectNode();
  }

  /** Receives in a branch of an XA transaction over Core and prepares it; then disconnects. */
  static JsonNode xaPrepare(JsonNode c) throws Exception {
    ArrayNode seen = JSON.createArrayNode();
    try (var factory =
            new org.apache.activemq.artemis.jms.client.ActiveMQXAConnectionFactory(text(c, "url"));
        var connection = factory.createXAConnection(text(c, "user"), text(c, "password"))) {
      connection.start();
      var session = connection.createXASession();
      var resource = session.getXAResource();
      resource.start(xid(c), javax.transaction.xa.XAResource.TMNOFLAGS);
      MessageConsumer consumer = session.createConsumer(destination(session, text(c, "destination")));
      for (int number = 0; number < c.get("count").asInt(); number++) {
        Message message = consumer.receive(c.get("waitMs").asLong());
        if (message == null) {
          break;
        }
        seen.add(describe(message));
      }
      resource.end(xid(c), javax.transaction.xa.XAResource.TMSUCCESS);
      resource.prepare(xid(c));
    }
    return seen;
  }

  /** Commits a prepared branch or rolls it back, as a transaction manager does that recovers. */
  static JsonNode xaFinish(JsonNode c) throws Exception {
    try (var factory =
            new org.apache.activemq.artemis.jms.client.ActiveMQXAConnectionFactory(text(c, "url"));
        var connection = factory.createXAConnection(text(c, "user"), text(c, "password"))) {
      var resource = connection.createXASession().getXAResource();
      if (c.get("commits").asBoolean()) {
        resource.commit(xid(c), false);
      } else {
        resource.rollback(xid(c));
      }
    }
    return JSON.createObjectNode();
  }

  static javax.transaction.xa.Xid xid(JsonNode c) {
    byte[] name = text(c, "name").getBytes(StandardCharsets.UTF_8);
    return new org.apache.activemq.artemis.core.transaction.impl.XidImpl(name, 1, name);
  }

  static Object coreValue(JsonNode pair) {
    return switch (pair.get(0).asText()) {
      case "byte[]" -> HexFormat.of().parseHex(pair.get(1).asText());
      case "Character" -> pair.get(1).asText().charAt(0);
      default -> untyped(pair);
    };
  }

  static Session session(Connection connection, boolean transacted) throws JMSException {
    return transacted
        ? connection.createSession(true, Session.SESSION_TRANSACTED)
        : connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
  }

  static MessageProducer producer(Session session, JsonNode c) throws JMSException {
    MessageProducer producer = session.createProducer(destination(session, text(c, "destination")));
    producer.setDeliveryMode(
        c.path("persistent").asBoolean(true) ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT);
    producer.setPriority(c.path("priority").asInt(Message.DEFAULT_PRIORITY));
    producer.setTimeToLive(c.path("ttlMs").asLong(0));
    if (c.hasNonNull("deliveryDelayMs")) {
      producer.setDeliveryDelay(c.get("deliveryDelayMs").asLong());
    }
    return producer;
  }

  static String text(JsonNode c, String key) {
    return c.get(key).asText();
  }

  static Message message(Session session, String type, JsonNode c) throws JMSException {
    String body = c.hasNonNull("text") ? text(c, "text") : "t\u00e9xt body \u20ac \ud83d\ude00 \0 <&>\r\n";
    int size = c.path("bodySize").asInt(0);
    switch (type) {
      case "Text":
        return session.createTextMessage(size > 0 ? "x".repeat(size) : body);
      case "EmptyText":
        return session.createTextMessage("");
      case "NullText":
        return session.createTextMessage();
      case "Bytes": {
        BytesMessage bytes = session.createBytesMessage();
        byte[] content = size > 0 ? new byte[size] : new byte[] {0, 1, (byte) 0xff, 65, 10, 0};
        bytes.writeBytes(content);
        return bytes;
      }
      case "EmptyBytes":
        return session.createBytesMessage();
      case "Map": {
        MapMessage map = session.createMapMessage();
        map.setBoolean("boolean", true);
        map.setByte("byte", (byte) -3);
        map.setShort("short", (short) 9);
        map.setChar("char", '\u00e9');
        map.setInt("int", 1);
        map.setLong("long", 1L << 40);
        map.setFloat("float", 1.5f);
        map.setDouble("double", 1.25);
        map.setString("string", "x\u20ac");
        map.setString("empty", "");
        map.setBytes("bytes", new byte[] {1, 2, (byte) 0xff});
        return map;
      }
      case "Object":
        return session.createObjectMessage(new ArrayList<>(List.of("a\u00e9", 1, 2L)));
      case "Stream":
      case "PlainStream": {
        StreamMessage stream = session.createStreamMessage();
        stream.writeBoolean(true);
        stream.writeByte((byte) -3);
        stream.writeShort((short) 9);
        stream.writeInt(1);
        stream.writeLong(1L << 40);
        stream.writeFloat(1.5f);
        stream.writeDouble(1.25);
        stream.writeString("two\u20ac");
        if (type.equals("Stream")) {
          stream.writeBytes(new byte[] {1, 2, (byte) 0xff});
        }
        return stream;
      }
      case "Message":
        return session.createMessage();
      case "NullObject":
        return session.createObjectMessage();
      case "EmptyMap":
        return session.createMapMessage();
      case "OddMap": {
        MapMessage map = session.createMapMessage();
        map.setString(" \u20ac\n", null);
        map.setBytes("nothing", new byte[0]);
        map.setChar("zero", '\0');
        map.setChar("half", '\ud83d');
        map.setDouble("nan", Double.NaN);
        return map;
      }
      case "EmptyStream":
        return session.createStreamMessage();
      case "NullStream": {
        StreamMessage stream = session.createStreamMessage();
        stream.writeString(null);
        return stream;
      }
      case "CharStream": {
        StreamMessage stream = session.createStreamMessage();
        stream.writeChar('\ud83d');
        return stream;
      }
      default:
        throw new IllegalArgumentException("unknown message type: " + type);
    }
  }

  static void decorate(Session session, Message m, JsonNode c, int number) throws JMSException {
    if (c.path("sampleProperties").asBoolean(true)) {
      m.setIntProperty("p_int", -42);
      m.setLongProperty("p_long", 1L << 40);
      m.setBooleanProperty("p_bool", true);
      m.setDoubleProperty("p_double", 2.5);
      m.setFloatProperty("p_float", 1.5f);
      m.setShortProperty("p_short", (short) 7);
      m.setByteProperty("p_byte", (byte) 3);
      m.setStringProperty("p_string", "h\u00e9llo\u20ac:w\\x\nnl");
      m.setStringProperty("p_number_string", "0042");
      m.setStringProperty("p_empty", "");
      m.setObjectProperty("p_null", null);
    }
    for (Iterator<Map.Entry<String, JsonNode>> i = c.path("properties").fields(); i.hasNext(); ) {
      Map.Entry<String, JsonNode> property = i.next();
      m.setObjectProperty(property.getKey(), untyped(property.getValue()));
    }
    if (c.hasNonNull("testIds")) {
      m.setStringProperty("testId", c.get("testIds").get(number).asText());
    }
    if (c.hasNonNull("correlationId")) {
      m.setJMSCorrelationID(text(c, "correlationId"));
    }
    if (c.hasNonNull("replyTo")) {
      m.setJMSReplyTo(destination(session, text(c, "replyTo")));
    }
    if (c.hasNonNull("jmsType")) {
      m.setJMSType(text(c, "jmsType"));
    }
    if (c.hasNonNull("group")) {
      m.setStringProperty("JMSXGroupID", text(c, "group"));
      m.setIntProperty("JMSXGroupSeq", c.path("groupSeq").asInt(number + 1));
    }
  }

  static Object untyped(JsonNode pair) {
    JsonNode value = pair.get(1);
    return switch (pair.get(0).asText()) {
      case "Boolean" -> value.asBoolean();
      case "Byte" -> (byte) value.asInt();
      case "Short" -> (short) value.asInt();
      case "Integer" -> value.asInt();
      case "Long" -> value.asLong();
      case "Float" -> (float) value.asDouble();
      case "Double" -> value.asDouble();
      case "String" -> value.asText();
      case "null" -> null;
      default -> throw new IllegalArgumentException("unknown property type: " + pair);
    };
  }

  // ---- describing -------------------------------------------------------------------------------

  static ObjectNode describe(Message m) throws Exception {
    ObjectNode all = JSON.createObjectNode();
    all.put("receivedAtMs", System.currentTimeMillis());
    all.put("type", type(m)).put("javaClass", m.getClass().getSimpleName());
    try {
      all.set("body", body(m));
    } catch (JMSException | IOException | RuntimeException unreadable) {
      all.put("bodyError", unreadable.toString());
    }
    ObjectNode headers = all.putObject("headers");
    headers.put("JMSMessageID", m.getJMSMessageID());
    headers.put("JMSTimestamp", m.getJMSTimestamp());
    headers.put("JMSCorrelationID", m.getJMSCorrelationID());
    headers.put("JMSReplyTo", name(m.getJMSReplyTo()));
    headers.put("JMSDestination", name(m.getJMSDestination()));
    headers.put("JMSDeliveryMode", m.getJMSDeliveryMode());
    headers.put("JMSPriority", m.getJMSPriority());
    headers.put("JMSExpiration", m.getJMSExpiration());
    headers.put("JMSRedelivered", m.getJMSRedelivered());
    headers.put("JMSType", m.getJMSType());
    Set<String> names = new TreeSet<>();
    for (Enumeration<?> e = m.getPropertyNames(); e.hasMoreElements(); ) {
      names.add((String) e.nextElement());
    }
    names.removeAll(List.of("JMSXDeliveryCount", "JMSXGroupID", "JMSXGroupSeq"));
    ObjectNode properties = all.putObject("properties");
    for (String name : names) {
      properties.set(name, typed(m.getObjectProperty(name)));
    }
    all.put("groupId", m.getStringProperty("JMSXGroupID"));
    all.set("groupSeq", JSON.valueToTree(optional(m, "JMSXGroupSeq")));
    all.set("deliveryCount", JSON.valueToTree(optional(m, "JMSXDeliveryCount")));
    return all;
  }

  static Object optional(Message m, String property) throws JMSException {
    return m.propertyExists(property) || property.equals("JMSXDeliveryCount")
        ? m.getObjectProperty(property)
        : null;
  }

  static String name(Destination destination) throws JMSException {
    if (destination instanceof Topic topic && isTopic(destination)) {
      return "topic://" + topic.getTopicName();
    }
    return destination instanceof Queue queue ? "queue://" + queue.getQueueName() : null;
  }

  static boolean isTopic(Destination destination) {
    if (destination instanceof org.apache.activemq.artemis.jms.client.ActiveMQDestination core) {
      return !core.isQueue();
    }
    return true;
  }

  static String type(Message m) {
    if (m instanceof TextMessage) {
      return "Text";
    } else if (m instanceof BytesMessage) {
      return "Bytes";
    } else if (m instanceof MapMessage) {
      return "Map";
    } else if (m instanceof ObjectMessage) {
      return "Object";
    }
    return m instanceof StreamMessage ? "Stream" : "Message";
  }

  static JsonNode body(Message m) throws Exception {
    if (m instanceof TextMessage text) {
      return JSON.valueToTree(text.getText());
    } else if (m instanceof BytesMessage bytes) {
      bytes.reset();
      byte[] content = new byte[(int) bytes.getBodyLength()];
      bytes.readBytes(content);
      bytes.reset();
      return JSON.valueToTree(hex(content));
    } else if (m instanceof MapMessage map) {
      ObjectNode entries = JSON.createObjectNode();
      for (Enumeration<?> e = map.getMapNames(); e.hasMoreElements(); ) {
        String key = (String) e.nextElement();
        entries.set(key, typed(map.getObject(key)));
      }
      return entries;
    } else if (m instanceof ObjectMessage object) {
      Object value = object.getObject();
      ByteArrayOutputStream serialised = new ByteArrayOutputStream();
      new ObjectOutputStream(serialised).writeObject(value);
      return JSON.createObjectNode()
          .put("class", value == null ? null : value.getClass().getName())
          .put("text", String.valueOf(value))
          .put("hex", hex(serialised.toByteArray()));
    } else if (m instanceof StreamMessage stream) {
      ArrayNode entries = JSON.createArrayNode();
      stream.reset();
      try {
        while (true) {
          entries.add(typed(stream.readObject()));
        }
      } catch (MessageEOFException end) {
        stream.reset();
        return entries;
      }
    }
    return JSON.nullNode();
  }

  static JsonNode typed(Object value) {
    ArrayNode pair = JSON.createArrayNode();
    if (value == null) {
      return pair.add("null").addNull();
    } else if (value instanceof byte[] bytes) {
      return pair.add("byte[]").add(hex(bytes));
    }
    pair.add(value.getClass().getSimpleName());
    return pair.add(JSON.<JsonNode>valueToTree(value));
  }

  static String hex(byte[] bytes) {
    return HexFormat.of().formatHex(bytes);
  }

  // ---- consuming --------------------------------------------------------------------------------

  static JsonNode consume(JsonNode c) throws Exception {
    ArrayNode received = JSON.createArrayNode();
    int count = c.path("count").asInt(Integer.MAX_VALUE);
    boolean transacted = c.path("transacted").asBoolean();
    try (Connection connection = connect(c)) {
      Session session = session(connection, transacted);
      MessageConsumer consumer = consumer(session, c);
      while (received.size() < count) {
        Message message = consumer.receive(c.get("waitMs").asLong());
        if (message == null) {
          break;
        }
        received.add(describe(message));
      }
      if (transacted) {
        session.commit();
      }
    }
    return received;
  }

  static JsonNode browse(JsonNode c) throws Exception {
    ArrayNode seen = JSON.createArrayNode();
    int limit = c.path("limit").asInt(Integer.MAX_VALUE);
    try (Connection connection = connect(c)) {
      Session session = session(connection, false);
      Queue queue = (Queue) destination(session, text(c, "destination"));
      QueueBrowser browser = session.createBrowser(queue, c.path("selector").asText(null));
      Enumeration<?> messages = browser.getEnumeration();
      while (seen.size() < limit && messages.hasMoreElements()) {
        Message message = (Message) messages.nextElement();
        if (message != null) {
          seen.add(describe(message));
        }
      }
    }
    return seen;
  }

  static JsonNode subscribe(JsonNode c) throws Exception {
    try (Connection connection = connect(c)) {
      consumer(session(connection, false), c).close();
    }
    return JSON.nullNode();
  }

  static JsonNode unsubscribe(JsonNode c) throws Exception {
    try (Connection connection = connect(c)) {
      session(connection, false).unsubscribe(text(c, "subscription"));
    }
    return JSON.nullNode();
  }

  // ---- failing ----------------------------------------------------------------------------------

  /** Decides about one delivery: true lets it succeed, false makes it fail. */
  interface Verdict {
    boolean succeeds(Message message) throws Exception;
  }

  /** Tells the loop whether to go on; asked at least every POLL_MS. */
  interface Going {
    boolean on() throws Exception;
  }

  /** Receives until told to stop, and lets each delivery succeed or fail in the way asked for. */
  static void attempt(JsonNode c, Verdict verdict, Going going) throws Exception {
    String how = text(c, "how");
    while (going.on()) {
      try (Connection connection = connect(c)) {
        switch (how) {
          case "listener" -> listen(connection, c, verdict, going);
          case "close" -> failByClosing(connection, c, verdict, going);
          default -> failInSession(connection, c, how, verdict, going);
        }
      }
    }
  }

  static void failInSession(
      Connection connection, JsonNode c, String how, Verdict verdict, Going going)
      throws Exception {
    Session session =
        switch (how) {
          case "rollback" -> session(connection, true);
          case "recover" -> connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
          case "reject" -> connection.createSession(false, INDIVIDUAL_ACKNOWLEDGE);
          default -> throw new IllegalArgumentException("unknown way to fail: " + how);
        };
    MessageConsumer consumer = consumer(session, c);
    CountDownLatch lost = watch(connection);
    while (going.on()) {
      Message message = consumer.receive(POLL_MS);
      if (message == null) {
        if (lost.getCount() == 0) {
          throw new JMSException("the connection is lost");
        }
        continue;
      }
      boolean succeeds = verdict.succeeds(message);
      switch (how) {
        case "rollback" -> {
          if (succeeds) {
            session.commit();
          } else {
            session.rollback();
          }
        }
        case "recover" -> {
          if (succeeds) {
            message.acknowledge();
          } else {
            session.recover();
          }
        }
        default -> {
          message.setIntProperty("JMS_AMQP_ACK_TYPE", succeeds ? AMQP_ACCEPTED : AMQP_REJECTED);
          message.acknowledge();
        }
      }
      settled(verdict, message, succeeds);
    }
    consumer.close();
  }

  static void failByClosing(Connection connection, JsonNode c, Verdict verdict, Going going)
      throws Exception {
    Session session = session(connection, true);
    MessageConsumer consumer = consumer(session, c);
    CountDownLatch lost = watch(connection);
    while (going.on()) {
      Message message = consumer.receive(POLL_MS);
      if (message == null) {
        if (lost.getCount() == 0) {
          throw new JMSException("the connection is lost");
        }
        continue;
      }
      if (!verdict.succeeds(message)) {
        connection.close();
        settled(verdict, message, false);
        return;
      }
      session.commit();
      settled(verdict, message, true);
    }
  }

  static void listen(Connection connection, JsonNode c, Verdict verdict, Going going)
      throws Exception {
    Session session = session(connection, false);
    MessageConsumer consumer = consumer(session, c);
    CountDownLatch lost = watch(connection);
    BlockingQueue<Throwable> broken = new LinkedBlockingQueue<>();
    consumer.setMessageListener(
        message -> {
          boolean succeeds;
          try {
            succeeds = verdict.succeeds(message);
            settled(verdict, message, succeeds);
          } catch (Throwable failure) {
            broken.add(failure);
            throw new IllegalStateException(failure);
          }
          if (!succeeds) {
            throw new IllegalStateException("boom: the application failed on purpose \u00e9");
          }
        });
    while (going.on() && broken.isEmpty()) {
      if (lost.await(POLL_MS, TimeUnit.MILLISECONDS)) {
        throw new JMSException("the connection is lost");
      }
    }
    consumer.close();
    if (!broken.isEmpty()) {
      throw new IllegalStateException(broken.remove());
    }
  }

  static void settled(Verdict verdict, Message message, boolean succeeded) throws Exception {
    if (verdict instanceof Flaky flaky) {
      flaky.settled(message, succeeded);
    }
  }

  static CountDownLatch watch(Connection connection) throws JMSException {
    CountDownLatch lost = new CountDownLatch(1);
    connection.setExceptionListener(failure -> lost.countDown());
    return lost;
  }

  static String identity(Message message) throws JMSException {
    String testId = message.getStringProperty("testId");
    return testId != null ? testId : message.getJMSMessageID();
  }

  /** Fails every delivery until all expected ones were seen; an error if one does not come. */
  static JsonNode fail(JsonNode c) throws Exception {
    ArrayNode seen = JSON.createArrayNode();
    Map<String, Integer> deliveries = new HashMap<>();
    int messages = c.get("messages").asInt();
    int each = c.get("deliveries").asInt();
    long waitNs = TimeUnit.MILLISECONDS.toNanos(c.get("waitMs").asLong());
    long quietNs = TimeUnit.MILLISECONDS.toNanos(c.get("quietMs").asLong());
    long endNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(c.get("withinMs").asLong());
    long[] lastNs = {System.nanoTime()};
    Verdict verdict =
        message -> {
          synchronized (seen) {
            deliveries.merge(identity(message), 1, Integer::sum);
            seen.add(describe(message));
            lastNs[0] = System.nanoTime();
          }
          return false;
        };
    Going going =
        () -> {
          synchronized (seen) {
            if (System.nanoTime() - endNs > 0) {
              throw new IllegalStateException(
                  "the broker did not give up within the time allowed; deliveries: " + deliveries);
            }
            boolean complete =
                deliveries.size() >= messages
                    && deliveries.values().stream().allMatch(n -> n >= each);
            boolean goesOn = System.nanoTime() - lastNs[0] < (complete ? quietNs : waitNs);
            if (!goesOn && !complete) {
              throw new IllegalStateException(
                  messages + " messages, " + each + " times each, did not come: " + deliveries);
            }
            return goesOn;
          }
        };
    attempt(c, verdict, going);
    return seen;
  }

  /** A consumer in the background that fails the first deliveries of each message. */
  static final class Flaky implements Runnable, Verdict {
    final String name;
    final JsonNode c;
    final CountDownLatch ended = new CountDownLatch(1);
    final CountDownLatch ready = new CountDownLatch(1);
    final Map<String, Integer> deliveries = new ConcurrentHashMap<>();
    final AtomicLong successes = new AtomicLong();
    volatile boolean stopped;

    Flaky(JsonNode command) {
      c = command;
      name = text(command, "name");
    }

    @Override
    public void run() {
      while (!stopped) {
        try {
          attempt(c, this, this::goesOn);
        } catch (Exception failure) {
          report(JSON.createObjectNode().put("outcome", "disconnected").put("why", "" + failure));
          LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(POLL_MS));
        }
      }
      ended.countDown();
    }

    boolean goesOn() {
      ready.countDown();
      return !stopped;
    }

    @Override
    public boolean succeeds(Message message) throws Exception {
      int number = deliveries.merge(identity(message), 1, Integer::sum);
      long failures = c.path("failures").asLong(0);
      String property = c.path("failuresProperty").asText(null);
      if (property != null && message.propertyExists(property)) {
        failures = message.getLongProperty(property);
      }
      boolean succeeds = failures >= 0 && number > failures;
      report(event(message, succeeds ? "succeeding" : "failing", number));
      return succeeds;
    }

    void settled(Message message, boolean succeeded) throws Exception {
      int number = deliveries.get(identity(message));
      if (succeeded) {
        successes.incrementAndGet();
      }
      report(event(message, succeeded ? "succeeded" : "failed", number));
    }

    ObjectNode event(Message message, String outcome, int number) throws Exception {
      ObjectNode event = JSON.createObjectNode();
      event.put("outcome", outcome).put("atMs", System.currentTimeMillis());
      event.put("id", identity(message)).put("delivery", number);
      event.put("messageId", message.getJMSMessageID());
      event.set("deliveryCount", JSON.valueToTree(optional(message, "JMSXDeliveryCount")));
      for (String key : List.of("amqsidecarRedeliveryCount", "redeliveryDelay")) {
        if (message.propertyExists(key)) {
          event.set(key, JSON.valueToTree(message.getObjectProperty(key)));
        }
      }
      if (c.path("full").asBoolean() && outcome.endsWith("ing")) {
        event.set("message", describe(message));
      }
      return event;
    }

    void report(ObjectNode event) {
      Peer.report(name, event);
    }
  }

  static void report(String name, ObjectNode event) {
    ObjectNode line = JSON.createObjectNode().put("consumer", name);
    line.set("event", event);
    write(line);
  }

  static JsonNode startFlaky(JsonNode c) throws Exception {
    Flaky flaky = new Flaky(c);
    connect(c).close();
    FLAKY.put(flaky.name, flaky);
    Thread thread = new Thread(flaky, "flaky-" + flaky.name);
    thread.setDaemon(true);
    thread.start();
    flaky.ready.await();
    return JSON.nullNode();
  }

  static JsonNode stopFlaky(JsonNode c) throws Exception {
    Flaky flaky = FLAKY.remove(text(c, "name"));
    flaky.stopped = true;
    return JSON.valueToTree(flaky.ended.await(c.get("waitMs").asLong(), TimeUnit.MILLISECONDS));
  }

  // ---- producing in the background --------------------------------------------------------------

  /** Sends one transaction after the other, with a message of each type, until told to stop. */
  static final class SteadyProducer implements Runnable {
    final JsonNode c;
    final CountDownLatch ended = new CountDownLatch(1);
    volatile boolean stopped;
    private final Flaky consumer;
    private int number;
    private long committed;

    SteadyProducer(JsonNode command) {
      c = command;
      consumer = c.has("consumer") ? FLAKY.get(text(c, "consumer")) : null;
    }

    @Override
    public void run() {
      while (!stopped) {
        try (Connection connection = connect(c)) {
          Session session = session(connection, true);
          MessageProducer producer = producer(session, c);
          while (!stopped) {
            sendOfEachType(session, producer);
            do {
              LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(c.get("pauseMs").asLong()));
            } while (isFarAhead() && !stopped);
          }
        } catch (Exception failure) {
          report(JSON.createObjectNode().put("outcome", "in doubt").put("why", "" + failure));
          LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(POLL_MS));
        }
      }
      ended.countDown();
    }

    private boolean isFarAhead() {
      return consumer != null && committed - consumer.successes.get() >= c.get("ahead").asLong();
    }

    private void sendOfEachType(Session session, MessageProducer producer) throws Exception {
      for (JsonNode type : c.get("types")) {
        Message message = message(session, type.asText(), c);
        decorate(session, message, c, number);
        message.setStringProperty("testId", text(c, "testIdPrefix") + number++);
        producer.send(message);
        report(JSON.createObjectNode().put("outcome", "sent").set("message", describe(message)));
      }
      session.commit();
      committed += c.get("types").size();
      report(JSON.createObjectNode().put("outcome", "committed"));
    }

    private void report(ObjectNode event) {
      Peer.report(text(c, "name"), event);
    }
  }

  static JsonNode startProducer(JsonNode c) {
    SteadyProducer producer = new SteadyProducer(c);
    PRODUCERS.put(text(c, "name"), producer);
    Thread thread = new Thread(producer, "producer-" + text(c, "name"));
    thread.setDaemon(true);
    thread.start();
    return JSON.nullNode();
  }

  static JsonNode stopProducer(JsonNode c) throws Exception {
    SteadyProducer producer = PRODUCERS.remove(text(c, "name"));
    producer.stopped = true;
    return JSON.valueToTree(producer.ended.await(c.get("waitMs").asLong(), TimeUnit.MILLISECONDS));
  }

  // ---- moving many ------------------------------------------------------------------------------

  static JsonNode rate(int count, long beganNs, int batch) {
    double elapsedS = (System.nanoTime() - beganNs) / 1e9;
    return JSON.createObjectNode()
        .put("count", count)
        .put("batch", batch)
        .put("elapsedS", elapsedS)
        .put("perSecond", count / elapsedS);
  }

  static JsonNode fill(JsonNode c) throws Exception {
    int count = c.get("count").asInt();
    int batch = c.get("batch").asInt();
    double perSecond = c.path("perSecond").asDouble(0);
    String body = "x".repeat(c.get("size").asInt());
    String prefix = c.path("testIdPrefix").asText(null);
    long beganNs = System.nanoTime();
    try (Connection connection = connect(c)) {
      Session session = session(connection, true);
      MessageProducer producer = producer(session, c);
      for (int i = 0; i < count; i++) {
        TextMessage message = session.createTextMessage(body);
        decorate(session, message, c, i);
        if (prefix != null) {
          message.setStringProperty("testId", prefix + i);
        }
        message.setIntProperty("n", i);
        producer.send(message);
        if (i % batch == batch - 1) {
          session.commit();
        }
        if (perSecond > 0) {
          long dueNs = beganNs + (long) ((i + 1) / perSecond * 1e9);
          LockSupport.parkNanos(dueNs - System.nanoTime());
        }
      }
      session.commit();
    }
    return rate(count, beganNs, batch);
  }

  static JsonNode drain(JsonNode c) throws Exception {
    int count = c.path("count").asInt(Integer.MAX_VALUE);
    int batch = c.get("batch").asInt();
    int drained = 0;
    long beganNs = 0;
    long lastNs = 0;
    try (Connection connection = connect(c)) {
      Session session = session(connection, true);
      MessageConsumer consumer = consumer(session, c);
      while (drained < count && consumer.receive(c.get("waitMs").asLong()) != null) {
        lastNs = System.nanoTime();
        beganNs = drained == 0 ? lastNs : beganNs;
        if (++drained % batch == 0) {
          session.commit();
        }
      }
      session.commit();
    }
    long idleNs = drained < count && drained > 0 ? System.nanoTime() - lastNs : 0;
    return rate(drained, drained == 0 ? System.nanoTime() : beganNs + idleNs, batch);
  }

  /** Sends on what a queue holds, as forwarders, retry wrappers and bridges do. */
  static JsonNode forward(JsonNode c) throws Exception {
    ArrayNode sent = JSON.createArrayNode();
    boolean transacted = c.path("transacted").asBoolean();
    try (Connection connection = connect(c)) {
      Session session = session(connection, transacted);
      MessageConsumer consumer = consumer(session, c);
      MessageProducer producer = session.createProducer(destination(session, text(c, "to")));
      while (sent.size() < c.get("count").asInt()) {
        Message message = consumer.receive(c.get("waitMs").asLong());
        if (message == null) {
          break;
        }
        Message onward = c.path("copies").asBoolean() ? copy(session, message) : message;
        producer.send(onward);
        sent.add(describe(onward));
        if (transacted) {
          session.commit();
        }
      }
    }
    return sent;
  }

  /** Returns a new text message with all properties whose names JMS lets an application set. */
  static Message copy(Session session, Message message) throws JMSException {
    Message copied = session.createTextMessage(((TextMessage) message).getText());
    for (Enumeration<?> i = message.getPropertyNames(); i.hasMoreElements(); ) {
      String name = (String) i.nextElement();
      if (!name.startsWith("JMS") && name.chars().allMatch(Character::isJavaIdentifierPart)) {
        copied.setObjectProperty(name, message.getObjectProperty(name));
      }
    }
    return copied;
  }

  static JsonNode move(JsonNode c) throws Exception {
    int count = c.get("count").asInt();
    int batch = c.get("batch").asInt();
    int moved = 0;
    try (Connection connection = connect(c)) {
      Session session = session(connection, true);
      MessageConsumer consumer = consumer(session, c);
      MessageProducer producer = session.createProducer(destination(session, text(c, "to")));
      producer.setDeliveryMode(DeliveryMode.PERSISTENT);
      long beganNs = System.nanoTime();
      while (moved < count) {
        Message message = consumer.receive(c.get("waitMs").asLong());
        if (message == null) {
          break;
        }
        producer.send(message);
        if (++moved % batch == 0) {
          session.commit();
        }
      }
      session.commit();
      return rate(moved, beganNs, batch);
    }
  }
}

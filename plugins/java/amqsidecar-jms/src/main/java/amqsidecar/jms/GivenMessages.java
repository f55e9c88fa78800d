package amqsidecar.jms;

import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Messages that the application still has in hand; it keeps none of them in memory. */
final class GivenMessages {
  private final Map<Key, Delivery> deliveries = new ConcurrentHashMap<>();
  private final ReferenceQueue<Object> dropped = new ReferenceQueue<>();

  /** Learns of a message that the application gets now. */
  void add(Object message, Delivery delivery) {
    Reference<?> gone = dropped.poll();
    while (gone != null) {
      deliveries.remove(gone);
      gone = dropped.poll();
    }
    deliveries.put(new Key(message, dropped), delivery);
  }

  /** Returns a message as a note names it; {@link Delivery#NONE} = it came by another way. */
  Delivery find(Object message) {
    return deliveries.getOrDefault(new Key(message, null), Delivery.NONE);
  }

  /** Why not the message itself: two copies of one message are equal for some clients. */
  private static final class Key extends WeakReference<Object> {
    private final int hash;

    Key(Object message, ReferenceQueue<Object> dropped) {
      super(message, dropped);
      hash = System.identityHashCode(message);
    }

    @Override
    public int hashCode() {
      return hash;
    }

    @Override
    public boolean equals(Object other) {
      return this == other
          || (other instanceof Key && get() != null && get() == ((Key) other).get());
    }
  }
}

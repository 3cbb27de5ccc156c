import { useEffect, useState } from "preact/hooks";

/** useSecondsSince counts the seconds since a time; a time of 0 stops it. */
export function useSecondsSince(time: number): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    if (!time) return;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [time]);
  return time ? Math.max(0, Math.floor((now - time) / 1000)) : 0;
}

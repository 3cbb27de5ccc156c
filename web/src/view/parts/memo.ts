import { Component, type ComponentType, type FunctionComponent } from "preact";
import { createElement } from "preact";

/** memo renders a component again only if a property is another value or object, or a signal that it reads changes. */
export function memo<P extends object>(inner: FunctionComponent<P>): ComponentType<P> {
  return class Memo extends Component<P> {
    static override displayName = `Memo(${inner.name})`;
    override shouldComponentUpdate(next: Readonly<P>): boolean {
      const before = this.props as Record<string, unknown>;
      return Object.keys({ ...before, ...next }).some((name) => before[name] !== (next as Record<string, unknown>)[name]);
    }
    override render(props: P) {
      return createElement(inner, props);
    }
  } as unknown as ComponentType<P>;
}

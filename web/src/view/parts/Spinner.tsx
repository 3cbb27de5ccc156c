export const Spinner = ({ label }: { readonly label: string }) => (
  <span class="spinner" role="status">
    <span class="spinner-ring" aria-hidden="true" />
    <span class="sr-only">{label}</span>
  </span>
);

/** Dots shows that a reply is on its way. */
export const Dots = () => (
  <span class="dots" aria-hidden="true">
    <i />
    <i />
    <i />
  </span>
);
